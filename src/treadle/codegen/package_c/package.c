/* The same for all packages: checks what it is given, finds memory, calls the host function. */

extern int64_t treadle_host(const int64_t *given, const int64_t *n, int64_t *results);
extern int64_t *treadle_host_error(void);
extern int treadle_run(void *const *, const int64_t *, int64_t *, int64_t, int64_t);
extern const char treadle_features[];

#define EXPORTED __attribute__((visibility("default")))
#define COUNT(n) ((n) > 0 ? (n) : 1)

static _Thread_local char error_text[1024];
static int fail(const char *form, ...)
{
    va_list rest;
    va_start(rest, form);
    vsnprintf(error_text, sizeof error_text, form, rest);
    va_end(rest);
    return 1;
}

/* ------------------------------------------------------------------------- memory of a run */

typedef struct workspace {
    struct workspace *next;
    int64_t sizes[COUNT(SIZES)];
    int64_t offsets[COUNT(BLOCKS)];
    int64_t total, held; /* bytes that the blocks need, bytes that are there */
    int is_placed, is_filled;
    int64_t filled_for[COUNT(SIZES)];
    int64_t numbers[BASE + COUNT(NUMBERS)];
    char *memory;
} workspace;

struct PACKAGE {
    pthread_mutex_t lock, turn;
    workspace *free;
    int64_t bytes_held;
    void *mapped;
    int64_t mapped_bytes;
    const void *weights[COUNT(WEIGHTS)];
    void *owned[COUNT(WEIGHTS)]; /* copies of weights that runs change */
    int64_t functions[BASE];
    void *torch_library;
};

static int64_t rounded(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static workspace *take_workspace(PACKAGE_TYPE *p)
{
    pthread_mutex_lock(&p->lock);
    workspace *w = p->free;
    if (w) p->free = w->next;
    pthread_mutex_unlock(&p->lock);
    return w ? w : (workspace *)calloc(1, sizeof(workspace));
}

static void give_workspace(PACKAGE_TYPE *p, workspace *w)
{
    pthread_mutex_lock(&p->lock);
    w->next = p->free;
    p->free = w;
    pthread_mutex_unlock(&p->lock);
}

static int hold(PACKAGE_TYPE *p, workspace *w, int64_t bytes)
{
    if (bytes <= w->held && w->memory) return 0;
    free(w->memory);
    int64_t before = w->held;
    w->memory = 0;
    w->held = 0;
    void *made = 0;
    if (posix_memalign(&made, ALIGNMENT, (size_t)rounded(bytes + 1))) made = 0;
    pthread_mutex_lock(&p->lock);
    p->bytes_held += (made ? bytes : 0) - before;
    pthread_mutex_unlock(&p->lock);
    if (!made) return fail("no memory for the %lld bytes that this run needs", (long long)bytes);
    w->memory = (char *)made;
    w->held = bytes;
    return 0;
}

/* Give every block a place: the largest first, each as low as those allow that live when it does. */
static int place(workspace *w, const int64_t *s, const int64_t *n)
{
    if (w->is_placed && !memcmp(w->sizes, s, sizeof(int64_t) * SIZES)) return 0;
    memcpy(w->sizes, s, sizeof(int64_t) * SIZES);
    w->is_placed = 1;
    if (!memcmp(s, likely_sizes, sizeof(int64_t) * SIZES)) {
        for (int k = 0; k < BLOCKS; ++k) w->offsets[k] = blocks[k].likely_offset;
        w->total = LIKELY_BYTES;
        return 0;
    }
    int64_t *bytes = (int64_t *)malloc(sizeof(int64_t) * COUNT(BLOCKS));
    int *order = (int *)malloc(sizeof(int) * COUNT(BLOCKS)), *near = (int *)malloc(sizeof(int) * COUNT(BLOCKS));
    w->total = 0;
    for (int k = 0; k < BLOCKS && bytes && order && near; ++k) {
        int64_t most = 0;
        for (int j = 0; j < blocks[k].count; ++j) {
            int64_t found = n[block_bytes[blocks[k].bytes_at + j]];
            most = found > most ? found : most;
        }
        bytes[k] = rounded(most);
        int at = k;
        for (; at > 0 && bytes[order[at - 1]] < bytes[k]; --at) order[at] = order[at - 1];
        order[at] = k;
    }
    for (int done = 0; done < BLOCKS && bytes && order && near; ++done) {
        int own = order[done], count = 0;
        for (int j = 0; j < done; ++j) { /* those that live with it, by where they lie */
            int other = order[j], at = count;
            if (blocks[other].last < blocks[own].first || blocks[own].last < blocks[other].first) continue;
            for (; at > 0 && w->offsets[near[at - 1]] > w->offsets[other]; --at) near[at] = near[at - 1];
            near[at] = other;
            ++count;
        }
        int64_t low = 0;
        for (int j = 0; j < count; ++j) {
            if (low + bytes[own] <= w->offsets[near[j]]) break;
            int64_t end = w->offsets[near[j]] + bytes[near[j]];
            low = end > low ? end : low;
        }
        w->offsets[own] = low;
        if (low + bytes[own] > w->total) w->total = low + bytes[own];
    }
    int failed = !bytes || !order || !near;
    free(bytes); free(order); free(near);
    if (failed) w->is_placed = 0;
    return failed ? fail("no memory to plan a run") : 0;
}

/* ------------------------------------------------------------------------- tensors */

static void copy_elements(char *to, const int64_t *to_steps, const char *from, const int64_t *from_steps,
                          int rank, const int64_t *sizes, int64_t item)
{
    if (rank == 0) { memcpy(to, from, (size_t)item); return; }
    int64_t a = to_steps[0] * item, b = from_steps[0] * item;
    if (rank == 1 && a == item && b == item) { memcpy(to, from, (size_t)(sizes[0] * item)); return; }
    for (int64_t k = 0; k < sizes[0]; ++k)
        copy_elements(to + k * a, to_steps + 1, from + k * b, from_steps + 1, rank - 1, sizes + 1, item);
}

static int is_empty(int rank, const int64_t *sizes)
{
    for (int k = 0; k < rank; ++k) if (sizes[k] == 0) return 1;
    return 0;
}

static int lies(const treadle_tensor *t, const int64_t *strides)
{
    if (is_empty(t->rank, t->sizes)) return 1;
    for (int k = 0; k < t->rank; ++k)
        if (t->sizes[k] != 1 && t->strides[k] != strides[k]) return 0;
    return 1;
}

static int is_right(const treadle_tensor *t, const tensor_record *r, const char *what)
{
    if (t->type != r->type) {
        const char *found = t->type >= 0 && t->type < TYPES ? type_names[t->type] : "an unknown type";
        return !fail("%s '%s' has elements of type %s, expected %s", what, r->name, found, type_names[r->type]);
    }
    if (t->rank != r->rank)
        return !fail("%s '%s' has %d dimensions, expected %d: %s", what, r->name, (int)t->rank, r->rank, r->shown);
    for (int k = 0; k < r->rank; ++k) {
        if (t->sizes[k] < 0 || t->sizes[k] > (int64_t)1 << 48)
            return !fail("%s '%s' has %lld elements in dimension %d", what, r->name, (long long)t->sizes[k], k);
        if (t->strides[k] < 0) return !fail("%s '%s' has a negative stride", what, r->name);
    }
    return 1;
}

static int has_sizes(const treadle_tensor *t, const tensor_record *r, const int64_t *n, const char *what)
{
    for (int k = 0; k < r->rank; ++k)
        if (t->sizes[k] != n[r->at + k])
            return !fail("%s '%s' has %lld elements in dimension %d, expected %lld: %s", what, r->name,
                         (long long)t->sizes[k], k, (long long)n[r->at + k], r->shown);
    return 1;
}

static int has_memory(const treadle_tensor *t, const tensor_record *r, const char *what)
{
    if (!t->data && !is_empty(t->rank, t->sizes)) return !fail("%s '%s' has no memory", what, r->name);
    if ((uintptr_t)t->data % (uintptr_t)r->item)
        return !fail("%s '%s' begins at an address that is no multiple of %d", what, r->name, r->item);
    return 1;
}

/* The sizes of a run, and every number that depends on them. */
static int find_sizes(const treadle_tensor *given, int64_t *s, workspace *w)
{
    int64_t *n = w->numbers;
    if (!given && INPUTS) return fail("there are no inputs");
    for (int k = 0; k < INPUTS; ++k) if (!is_right(&given[k], &inputs[k], "input")) return 1;
    for (int k = 0; k < SIZES; ++k) {
        s[k] = given[sizes[k].input].sizes[sizes[k].dim];
        if (s[k] < sizes[k].low || s[k] > sizes[k].high) {
            char most[40] = "any number";
            if (sizes[k].high < INT64_MAX) snprintf(most, sizeof most, "%lld", (long long)sizes[k].high);
            return fail("size %s is %lld (dimension %d of input '%s'), expected %lld to %s", sizes[k].name,
                        (long long)s[k], sizes[k].dim, inputs[sizes[k].input].name, (long long)sizes[k].low, most);
        }
    }
    for (int k = 0; k < SIZES; ++k)
        if (s[k] % sizes[k].divisor)
            return fail("size %s is %lld (dimension %d of input '%s'), expected a multiple of %lld", sizes[k].name,
                        (long long)s[k], sizes[k].dim, inputs[sizes[k].input].name, (long long)sizes[k].divisor);
    if (needed_bytes(s) > 9e18) return fail("a run with these sizes needs more bytes than there are addresses");
    if (!w->is_filled || memcmp(w->filled_for, s, sizeof(int64_t) * SIZES)) {
        memcpy(n + BASE, likely_numbers, sizeof likely_numbers);
        fill_numbers(s, n);
        memcpy(w->filled_for, s, sizeof(int64_t) * SIZES);
        w->is_filled = 1;
    }
    for (int k = 0; k < INPUTS; ++k) if (!has_sizes(&given[k], &inputs[k], n, "input")) return 1;
    const char *broken = broken_constraint(s);
    return broken ? fail("the sizes of the inputs break what the package was made for: %s", broken) : 0;
}

EXPORTED int FUNCTION(describe)(PACKAGE_TYPE *p, const treadle_tensor *given, treadle_tensor *results)
{
    int64_t s[COUNT(SIZES)];
    if (!p) return fail("the package is not loaded");
    if (!results && OUTPUTS) return fail("there is nowhere to put results");
    workspace *w = take_workspace(p);
    if (!w) return fail("no memory for a run");
    int failed = find_sizes(given, s, w);
    const int64_t *n = w->numbers;
    for (int k = 0; k < OUTPUTS && !failed; ++k) {
        treadle_tensor *t = &results[k];
        t->type = outputs[k].type;
        t->rank = outputs[k].rank;
        for (int j = 0; j < t->rank; ++j) {
            t->sizes[j] = n[outputs[k].at + j];
            t->strides[j] = n[outputs[k].at + t->rank + j];
        }
    }
    give_workspace(p, w);
    return failed;
}

/* ------------------------------------------------------------------------- running */

#define ADDRESS(p) ((int (*)(void *, void **))(p)->functions[4])
#define DELETE(p) ((int (*)(void *))(p)->functions[2])

static int report(int64_t status)
{
    if (status == -2) return fail("torch has no memory left for what a run needs");
    if (status > 0 && status <= STEPS && step_names[status - 1])
        return fail("torch's %s failed", step_names[status - 1]);
    if (status != -1) return fail("a call of torch failed");
    const int64_t *record = treadle_host_error();
    if (record[0] < 1 || record[0] > SITES)
        return fail("RUN012: no memory for %lld elements of scratch", (long long)record[1]);
    return fail("%s (found %lld, limit %lld)", site_texts[record[0] - 1], (long long)record[1], (long long)record[2]);
}

/* Where every storage lies; inputs that lie in another way than kernels expect are copied. */
static int find_addresses(PACKAGE_TYPE *p, workspace *w, const treadle_tensor *given, const treadle_tensor *results,
                          const int64_t *n, int64_t *addresses, char **made)
{
    int64_t spare = w->total;
    char *copies[COUNT(INPUTS)];
    int64_t at[COUNT(INPUTS)], out[COUNT(OUTPUTS)];
    for (int k = 0; k < INPUTS; ++k) {
        at[k] = -1;
        if (lies(&given[k], n + inputs[k].at + inputs[k].rank)) continue;
        if (inputs[k].changes) return fail("input '%s' is changed by the run, so it must lie row by row", inputs[k].name);
        at[k] = spare;
        spare += rounded(n[inputs[k].bytes_at]);
    }
    for (int k = 0; k < OUTPUTS; ++k) {
        out[k] = -1;
        if (!outputs[k].is_direct || lies(&results[k], n + outputs[k].at + outputs[k].rank)) continue;
        out[k] = spare;
        spare += rounded(n[outputs[k].bytes_at]);
    }
    if (hold(p, w, spare)) return 1;
    for (int k = 0; k < INPUTS; ++k) {
        copies[k] = (char *)given[k].data;
        if (at[k] < 0) continue;
        copies[k] = w->memory + at[k];
        copy_elements(copies[k], n + inputs[k].at + inputs[k].rank, (const char *)given[k].data, given[k].strides,
                      inputs[k].rank, given[k].sizes, inputs[k].item);
    }
    for (int k = 0; k < OUTPUTS; ++k) made[k] = out[k] < 0 ? (char *)results[k].data : w->memory + out[k];
    for (int k = 0; k < STORAGES; ++k) {
        int number = storages[k].number;
        switch (storages[k].kind) {
        case IS_INPUT: addresses[k] = (int64_t)copies[number]; break;
        case IS_WEIGHT: addresses[k] = (int64_t)(p->owned[number] ? p->owned[number] : p->weights[number]); break;
        case IS_OUTPUT: addresses[k] = (int64_t)made[number]; break;
        default: addresses[k] = (int64_t)(w->memory + w->offsets[number]);
        }
    }
    return 0;
}

/* Bring results that were made elsewhere to where the caller wants them. */
static int give_results(PACKAGE_TYPE *p, const treadle_tensor *results, const int64_t *n, const int64_t *addresses,
                        char *const *made, void *const *adopted)
{
    for (int k = 0; k < OUTPUTS; ++k) {
        const tensor_record *r = &outputs[k];
        const int64_t *steps = n + r->at + r->rank;
        const char *from = made[k];
        if (r->adopted >= 0) {
            void *found = 0;
            if (ADDRESS(p)(adopted[r->adopted], &found)) return fail("a result of torch's cannot be read");
            from = (const char *)found + n[r->offset_at] * r->item;
        } else if (!r->is_direct) {
            from = (const char *)addresses[r->storage] + n[r->offset_at] * r->item;
        } else if (from == (const char *)results[k].data) {
            continue;
        }
        if (!is_empty(r->rank, results[k].sizes))
            copy_elements((char *)results[k].data, results[k].strides, from, steps, r->rank, results[k].sizes, r->item);
    }
    return 0;
}

static int run_in(PACKAGE_TYPE *p, workspace *w, const treadle_tensor *given, const treadle_tensor *results)
{
    int64_t s[COUNT(SIZES)], *n = w->numbers;
    if (find_sizes(given, s, w)) return 1;
    for (int k = 0; k < INPUTS; ++k) if (!has_memory(&given[k], &inputs[k], "input")) return 1;
    for (int k = 0; k < OUTPUTS; ++k)
        if (!is_right(&results[k], &outputs[k], "result") || !has_sizes(&results[k], &outputs[k], n, "result")
            || !has_memory(&results[k], &outputs[k], "result"))
            return 1;
    int64_t addresses[COUNT(STORAGES)], adopted[COUNT(ADOPTED)];
    char *made[COUNT(OUTPUTS)];
    if (place(w, s, n) || find_addresses(p, w, given, results, n, addresses, made)) return 1;
    memcpy(n, p->functions, sizeof p->functions);
    int64_t status = treadle_host(addresses, n, adopted);
    if (status) return report(status);
    int failed = give_results(p, results, n, addresses, made, (void *const *)adopted);
    for (int k = 0; k < ADOPTED; ++k) DELETE(p)((void *)adopted[k]);
    return failed;
}

EXPORTED int FUNCTION(run)(PACKAGE_TYPE *p, const treadle_tensor *given, const treadle_tensor *results)
{
    if (!p) return fail("the package is not loaded");
    if (!results && OUTPUTS) return fail("there is nowhere to put results");
    workspace *w = take_workspace(p);
    if (!w) return fail("no memory for a run");
    if (HAS_STATE) pthread_mutex_lock(&p->turn);
    int failed = run_in(p, w, given, results);
    if (HAS_STATE) pthread_mutex_unlock(&p->turn);
    give_workspace(p, w);
    return failed;
}

/* ------------------------------------------------------------------------- loading */

static int has_processor(void)
{
    char names[1024], *rest = 0;
    snprintf(names, sizeof names, "%s", treadle_features);
    for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(0, " ", &rest)) {
        int found = -1;
#if defined(__x86_64__)
        __builtin_cpu_init();
#define KNOWN(feature) if (!strcmp(name, feature)) found = !!__builtin_cpu_supports(feature);
        KNOWN("sse4.2") KNOWN("avx") KNOWN("avx2") KNOWN("fma") KNOWN("bmi") KNOWN("bmi2") KNOWN("popcnt")
        KNOWN("avx512f") KNOWN("avx512bw") KNOWN("avx512cd") KNOWN("avx512dq") KNOWN("avx512vl")
        KNOWN("avx512vnni") KNOWN("avx512vbmi") KNOWN("avx512vbmi2") KNOWN("avx512ifma")
#endif
        if (found != 1) return !fail("the package was made for a processor with %s, which this one lacks", name);
    }
    return 1;
}

static uint64_t checksum(const uint64_t *words, int64_t count)
{
    uint64_t sum = 0;
    for (int64_t k = 0; k < count; ++k) sum += words[k] * ((uint64_t)(2 * k + 1) * 0x9E3779B97F4A7C15u);
    return sum;
}

static int map_weights(PACKAGE_TYPE *p, const char *folder)
{
    char file[4096];
    snprintf(file, sizeof file, "%s/weights.bin", folder);
    int f = open(file, O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (f < 0 || fstat(f, &about)) {
        if (f >= 0) close(f);
        return fail("%s: %s", file, strerror(errno));
    }
    if (about.st_size != WEIGHT_FILE_BYTES) {
        close(f);
        return fail("%s has %lld bytes, expected %lld", file, (long long)about.st_size, (long long)WEIGHT_FILE_BYTES);
    }
    void *found = mmap(0, WEIGHT_FILE_BYTES, PROT_READ, MAP_PRIVATE, f, 0);
    close(f);
    if (found == MAP_FAILED) return fail("%s cannot be mapped: %s", file, strerror(errno));
    p->mapped = found;
    p->mapped_bytes = WEIGHT_FILE_BYTES;
    const uint64_t *head = (const uint64_t *)found;
    if (memcmp(found, "TREADLEW", 8) || memcmp((const char *)found + 24, PACKAGE_ID, 32))
        return fail("%s holds the weights of another package", file);
    if (head[1] != checksum(head + 8, (WEIGHT_FILE_BYTES - 64) / 8)) return fail("%s is damaged", file);
    for (int k = 0; k < WEIGHTS; ++k) p->weights[k] = (const char *)found + weight_offsets[k];
    return 0;
}

static int take_weights(PACKAGE_TYPE *p, const treadle_options *options)
{
    const int64_t *n = likely_numbers - BASE; /* sizes of weights are fixed */
    if (options->weight_count != WEIGHTS)
        return fail("%lld weights were given, expected %d", (long long)options->weight_count, WEIGHTS);
    for (int k = 0; k < WEIGHTS; ++k) {
        const treadle_tensor *t = &options->weights[k];
        if (!is_right(t, &weights[k], "weight") || !has_sizes(t, &weights[k], n, "weight")
            || !has_memory(t, &weights[k], "weight"))
            return 1;
        if (!lies(t, n + weights[k].at + weights[k].rank))
            return fail("weight '%s' does not lie as the package expects: %s", weights[k].name, weights[k].shown);
        p->weights[k] = t->data;
    }
    return 0;
}

static int own_changed_weights(PACKAGE_TYPE *p)
{
    for (int k = 0; k < WEIGHTS; ++k) {
        if (!weights[k].changes) continue;
        int64_t bytes = weight_bytes[k];
        if (!p->owned[k] && posix_memalign(&p->owned[k], ALIGNMENT, (size_t)rounded(bytes + 1))) {
            p->owned[k] = 0;
            return fail("no memory for weight '%s'", weights[k].name);
        }
        memcpy(p->owned[k], p->weights[k], (size_t)bytes);
    }
    return 0;
}

static int link_torch(PACKAGE_TYPE *p, const treadle_options *options)
{
    const char *file = options->torch_library ? options->torch_library : "libtorch_cpu.so";
    if (!TORCH_VERSION) return 0;
    p->torch_library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!p->torch_library)
        return fail("the package calls torch, and %s cannot be loaded: name it in `torch_library`, or put its folder"
                    " on the loader's path", file);
    uint64_t (*version)(void) = (uint64_t (*)(void))dlsym(p->torch_library, "aoti_torch_abi_version");
    uint64_t found = version ? version() : 0;
    if (found >> 48 != (uint64_t)TORCH_VERSION)
        return fail("the package was made with torch %d.%d, found %d.%d", TORCH_VERSION >> 8, TORCH_VERSION & 255,
                    (int)(found >> 56), (int)(found >> 48 & 255));
    for (int k = 0; k < FUNCTIONS; ++k) {
        if (!functions[k].name) continue;
        void *address = dlsym(p->torch_library, functions[k].name);
        if (!address) return fail("this torch has no function %s", functions[k].name);
        p->functions[functions[k].at] = (int64_t)address;
    }
    return 0;
}

#ifdef USES_THREADS
/* The runtime that torch, or whoever started us, has loaded: none is brought along. */
static struct { void *parallel, *number, *count, *is_inside, *wanted; const int64_t *process; } thread_table;
static int64_t own_process;
extern void treadle_use_threads(const void *table);
static void link_threads(PACKAGE_TYPE *p)
{
    void *from = p->torch_library ? p->torch_library : RTLD_DEFAULT;
    thread_table.parallel = dlsym(from, "GOMP_parallel");
    thread_table.number = dlsym(from, "omp_get_thread_num");
    thread_table.count = dlsym(from, "omp_get_num_threads");
    thread_table.is_inside = dlsym(from, "omp_in_parallel");
    thread_table.wanted = dlsym(from, p->torch_library ? "_ZN2at15get_num_threadsEv" : "omp_get_max_threads");
    own_process = (int64_t)getpid();
    thread_table.process = &own_process;
    int is_whole = thread_table.parallel && thread_table.number && thread_table.count && thread_table.is_inside;
    treadle_use_threads(is_whole && thread_table.wanted ? &thread_table : 0);
}
#else
static void link_threads(PACKAGE_TYPE *p) { (void)p; }
#endif

EXPORTED void FUNCTION(free)(PACKAGE_TYPE *p)
{
    if (!p) return;
    for (workspace *w = p->free, *next; w; w = next) {
        next = w->next;
        free(w->memory);
        free(w);
    }
    for (int k = 0; k < WEIGHTS; ++k) free(p->owned[k]);
    if (p->mapped) munmap(p->mapped, (size_t)p->mapped_bytes);
    /* torch's library stays: its threads may still look at it. */
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->turn);
    free(p);
}

EXPORTED PACKAGE_TYPE *FUNCTION(load)(const treadle_options *options)
{
    treadle_options none;
    memset(&none, 0, sizeof none);
    if (!options) options = &none;
    if (!has_processor()) return 0;
    PACKAGE_TYPE *p = (PACKAGE_TYPE *)calloc(1, sizeof *p);
    if (!p) { fail("no memory for the package"); return 0; }
    pthread_mutex_init(&p->lock, 0);
    pthread_mutex_init(&p->turn, 0);
    p->functions[0] = (int64_t)treadle_run;
    int failed = link_torch(p, options);
    if (!failed && WEIGHTS) {
        if (options->weights) failed = take_weights(p, options);
        else if (!HAS_WEIGHT_FILE) failed = fail("the package holds only the names of its weights: give them to load");
        else failed = map_weights(p, options->folder ? options->folder : ".");
    }
    if (failed || own_changed_weights(p)) { FUNCTION(free)(p); return 0; }
    link_threads(p);
    return p;
}

EXPORTED void FUNCTION(reset)(PACKAGE_TYPE *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->turn);
    own_changed_weights(p);
    pthread_mutex_unlock(&p->turn);
}

EXPORTED int64_t FUNCTION(held)(PACKAGE_TYPE *p)
{
    pthread_mutex_lock(&p->lock);
    int64_t found = p->bytes_held;
    pthread_mutex_unlock(&p->lock);
    return found;
}

EXPORTED const char *FUNCTION(error)(void) { return error_text; }
EXPORTED const char *FUNCTION(id)(void) { return PACKAGE_ID; }
EXPORTED const char *FUNCTION(features)(void) { return treadle_features; }
