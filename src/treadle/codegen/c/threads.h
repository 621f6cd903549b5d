/* A nest in parts, each carried out by a thread of the OpenMP runtime that is in the process.

   Nothing is linked: who loads the library says where the runtime's functions are, and how many
   threads there should be (treadle_use_threads); until then, and wherever threads would not pay or
   are not safe, one does it all. Parts are whole blocks of the nest's outermost loop, and every
   point is computed as it would be by one thread, so results do not depend on how many there are. */
#include <unistd.h>

typedef struct {
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned);
    int (*number)(void), (*count)(void), (*is_inside)(void), (*wanted)(void);
    const int64_t *process;
    /* The process in which threads were first thought of: in one that was forked from it, those
       of the runtime are gone, and waiting for them would last for ever. */
} tr_thread_table;

static const tr_thread_table *tr_threads;

void treadle_use_threads(const void *table) { tr_threads = (const tr_thread_table *)table; }

typedef int (*tr_part)(void *const *given, const int64_t *sizes, int64_t *error, int64_t first,
                       int64_t last);

typedef struct {
    tr_part part;
    void *const *given;
    const int64_t *sizes;
    int64_t blocks;
    int64_t *errors; /* of each thread: whether it failed, then its record */
} tr_job;

enum { TR_ERROR_LENGTH = TR_ERRORS, TR_MOST_THREADS = 256 };

static void tr_work(void *given)
{
    const tr_job *job = (const tr_job *)given;
    int64_t k = tr_threads->number(), n = tr_threads->count();
    int64_t first = job->blocks * k / n, last = job->blocks * (k + 1) / n;
    int64_t *own = job->errors + k * (TR_ERROR_LENGTH + 1);
    own[0] = first < last ? job->part(job->given, job->sizes, own + 1, first, last) : 0;
}

/* Run a nest whose outermost loop has so many blocks; one takes some `cost` nanoseconds. */
static int tr_in_parts(tr_part part, void *const *given, const int64_t *sizes, int64_t *error,
                       int64_t blocks, double cost)
{
    /* A part that takes less than this would be done before its thread has begun. */
    const double least = 30000.0;
    int64_t n = 1;
    if (tr_threads && blocks > 1 && blocks * cost >= 2 * least && !tr_threads->is_inside()
        && *tr_threads->process == (int64_t)getpid()) {
        n = tr_threads->wanted();
        n = tr_min(tr_min(n, TR_MOST_THREADS), tr_min(blocks, (int64_t)(blocks * cost / least)));
    }
    if (n < 2) return part(given, sizes, error, 0, blocks);
    int64_t errors[n * (TR_ERROR_LENGTH + 1)];
    for (int64_t k = 0; k < n; ++k) errors[k * (TR_ERROR_LENGTH + 1)] = 0;
    const tr_job job = {part, given, sizes, blocks, errors};
    tr_threads->parallel(tr_work, (void *)&job, (unsigned)n, 0);
    for (int64_t k = 0; k < n; ++k) {
        /* The first of all failures is that of the first part that failed. */
        const int64_t *own = errors + k * (TR_ERROR_LENGTH + 1);
        if (!own[0]) continue;
        memcpy(error, own + 1, TR_ERROR_LENGTH * sizeof *error);
        return (int)own[0];
    }
    return 0;
}
