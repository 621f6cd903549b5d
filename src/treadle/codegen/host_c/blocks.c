/* Memory of results, used again by the next run as soon as nobody else holds it.
 *
 * A process that runs one graph after the other gives large results back to the system and asks for
 * the same again, page by page. Here a second tensor is kept over the storage of every large one:
 * when the storage has no other holder, the next request of that size and type gets a tensor over
 * it. What is held without being used is bounded; what was asked for longest ago goes first.
 *
 * `treadle_blocks_empty` takes the place of torch's own function and gives what that would give.
 * How many hold a storage is read where torch counts them; the offsets and the count that means
 * "nobody else" come from whoever links this, who has tried them.
 */
#include <stddef.h>
#include <stdint.h>

typedef void *tensor;
enum { EMPTY, DELETE, SEEN, ADDRESS, STORAGE_SIZE, IN_INFERENCE, FUNCTIONS };
enum { MOST_BLOCKS = 512, MOST_TRIES = 4096, CPU = 0 };

typedef struct {
    tensor held;
    const char *storage;
    void *address;
    int64_t elements, type, in_inference, bytes, asked;
} block;

static void *torch[FUNCTIONS];
static int64_t storage_at, count_at, alone, budget;
static block blocks[MOST_BLOCKS];
static int64_t in_use, held_bytes, now;
static char lock;

#define empty ((int (*)(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, tensor *))torch[EMPTY])
#define delete ((int (*)(tensor))torch[DELETE])
#define seen ((int (*)(tensor, int64_t, const int64_t *, const int64_t *, int64_t, tensor *))torch[SEEN])
#define address_of ((int (*)(tensor, void **))torch[ADDRESS])
#define storage_size ((int (*)(tensor, int64_t *))torch[STORAGE_SIZE])
#define in_inference_mode ((_Bool (*)(void))torch[IN_INFERENCE])

void treadle_blocks_link(void *const *functions, int64_t storage, int64_t count, int64_t no_other)
{
    for (int k = 0; k < FUNCTIONS; ++k) torch[k] = functions[k];
    storage_at = storage;
    count_at = count;
    alone = no_other;
}

/* A process forked while another thread was inside must not wait for ever: then nothing is kept. */
static int enter(void)
{
    for (int k = 0; k < MOST_TRIES; ++k)
        if (!__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE)) return 1;
    return 0;
}

static void leave(void) { __atomic_clear(&lock, __ATOMIC_RELEASE); }

static const char *storage_of(tensor one) { return *(const char **)(*(char **)one + storage_at); }

static int is_free(const block *b)
{
    return __atomic_load_n((const int64_t *)(b->storage + count_at), __ATOMIC_ACQUIRE) == alone;
}

static void drop(int64_t k)
{
    delete(blocks[k].held);
    held_bytes -= blocks[k].bytes;
    blocks[k] = blocks[--in_use];
}

static void make_room(int64_t bytes)
{
    while (in_use && (in_use == MOST_BLOCKS || held_bytes + bytes > budget)) {
        int64_t oldest = 0;
        for (int64_t k = 1; k < in_use; ++k)
            if (blocks[k].asked < blocks[oldest].asked) oldest = k;
        drop(oldest);
    }
}

static void keep(tensor made, int64_t elements, int64_t type, int64_t in_inference)
{
    block b = {0, storage_of(made), 0, elements, type, in_inference, 0, 0};
    const int64_t sizes[] = {elements}, strides[] = {1};
    if (storage_size(made, &b.bytes) || b.bytes > budget) return;
    if (address_of(made, &b.address) || seen(made, 1, sizes, strides, 0, &b.held)) return;
    make_room(b.bytes);
    b.asked = ++now;
    held_bytes += b.bytes;
    blocks[in_use++] = b;
}

static int64_t elements_of(int64_t dims, const int64_t *sizes, const int64_t *strides)
{
    int64_t last = 0;
    for (int64_t k = 0; k < dims; ++k) {
        if (!sizes[k]) return 0;
        last += (sizes[k] - 1) * strides[k];
    }
    return last + 1;
}

/* What many requests have passed by goes; one block is looked at each time. */
static void forget(void)
{
    static int64_t at;
    if (!in_use) return;
    at = (at + 1) % in_use;
    if (now - blocks[at].asked > 16 * in_use + 64) drop(at);
}

/* Whether a block is as it was made: storages can be given other memory, even smaller at the same
 * address. */
static int is_as_made(const block *b)
{
    void *address;
    int64_t bytes;
    return !address_of(b->held, &address) && !storage_size(b->held, &bytes)
        && address == b->address && bytes == b->bytes;
}

/* A tensor over a block that nobody else holds; 0 if there is none. */
static tensor again(int64_t elements, int64_t type, int64_t in_inference, int64_t dims,
                    const int64_t *sizes, const int64_t *strides)
{
    for (int64_t k = 0; k < in_use; ++k) {
        block *b = &blocks[k];
        tensor made = 0;
        if (b->elements != elements || b->type != type || b->in_inference != in_inference) continue;
        if (!is_free(b)) continue;
        if (!is_as_made(b)) { drop(k--); continue; }
        if (seen(b->held, dims, sizes, strides, 0, &made)) return 0;
        b->asked = ++now;
        return made;
    }
    return 0;
}

int treadle_blocks_empty(int64_t dims, const int64_t *sizes, const int64_t *strides, int32_t type,
                         int32_t device, int32_t device_index, tensor *made)
{
    int64_t elements = elements_of(dims, sizes, strides), inference;
    /* Allocators of other devices keep what is freed themselves. */
    if (device != CPU || elements < LEAST_ELEMENTS || !budget || !enter())
        return empty(dims, sizes, strides, type, device, device_index, made);
    inference = in_inference_mode();
    *made = again(elements, type, inference, dims, sizes, strides);
    forget();
    leave();
    if (*made) return 0;
    int failed = empty(dims, sizes, strides, type, device, device_index, made);
    if (!failed && enter()) {
        keep(*made, elements, type, inference);
        leave();
    }
    return failed;
}

/* Says how many bytes may be held from now on; lets go of what is more. */
int64_t treadle_blocks_limit(int64_t bytes)
{
    int64_t before = budget;
    if (!enter()) return -1;
    budget = bytes;
    make_room(0);
    if (!budget) while (in_use) drop(in_use - 1);
    leave();
    return before;
}

int64_t treadle_blocks_held(void) { return held_bytes; }
