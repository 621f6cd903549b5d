/* Launches kernels of a device one after the other, on the stream that the caller works on.
 *
 * A host function calls this in place of kernels. What there is to launch is in a record whose
 * address is the first of the sizes. Every argument is 64 bits wide: addresses of storages, then
 * run-time sizes. Of what the driver refuses `error` has the number.
 */
#include <stdint.h>

typedef struct { int64_t slot, offset; } argument;
typedef struct {
    void *function;
    int64_t grid, threads, shared, count;
    const argument *arguments;
} one;
typedef int (*launch_function)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               unsigned, void *, void **, void **);
typedef struct {
    int64_t device, sizes_count;
    const int64_t *sizes;
    const int64_t *begins; /* launches of kernel k: begins[k] up to, not including, begins[k + 1] */
    const one *launches;
    void *context; /* what a thread enters that has done nothing on the device yet */
    int32_t (*stream_of)(int32_t, void **);
    int (*present)(void **);
    int (*enter)(void *);
    launch_function launch;
} record;
enum { UNSEEN = 4 }; /* arguments that the compiler adds behind ours, all of them null */
static const int64_t AN_ADDRESS = (int64_t)1 << 40; /* stands for one where there is no memory */

static int launched(const record *r, const one *x, void *const *addresses, void *stream)
{
    int64_t values[x->count + r->sizes_count + UNSEEN], n = 0;
    void *given[x->count + r->sizes_count + UNSEEN];
    for (int64_t k = 0; k < x->count; ++k) {
        int64_t at = (int64_t)addresses[x->arguments[k].slot];
        values[n++] = (at ? at : AN_ADDRESS) + x->arguments[k].offset;
    }
    for (int64_t k = 0; k < r->sizes_count; ++k) values[n++] = r->sizes[k];
    for (int64_t k = 0; k < UNSEEN; ++k) values[n++] = 0;
    for (int64_t k = 0; k < n; ++k) given[k] = values + k;
    return r->launch(x->function, (unsigned)x->grid, 1, 1, (unsigned)x->threads, 1, 1,
                     (unsigned)x->shared, stream, given, 0);
}

int treadle_launch(void *const *addresses, const int64_t *sizes, int64_t *error, int64_t first,
                   int64_t last)
{
    const record *r = (const record *)sizes[0];
    void *stream = 0, *context = 0;
    error[0] = r->stream_of((int32_t)r->device, &stream);
    if (!error[0]) error[0] = r->present(&context);
    if (!error[0] && !context) error[0] = r->enter(r->context);
    for (int64_t k = r->begins[first]; k < r->begins[last] && !error[0]; ++k)
        error[0] = launched(r, r->launches + k, addresses, stream);
    return error[0] != 0;
}
