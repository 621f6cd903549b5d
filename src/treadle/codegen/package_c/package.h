/* $name: a graph that Treadle compiled ahead of time ($made).
 *
 * To run it: fill a `treadle_tensor` for each input, ask `treadle_$name_describe` how the results
 * will lie, give them memory, and call `treadle_$name_run`. Nothing here needs Python, and no header
 * but this one. All functions may be called from several threads at once; two runs of one package
 * that changes weights of its own take turns.
 *
$summary
 */
#ifndef TREADLE_$NAME_H
#define TREADLE_$NAME_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#ifndef TREADLE_TENSOR
#define TREADLE_TENSOR
enum { TREADLE_MOST_DIMS = 16 };
/* Element types. */
enum {
$types
};
/* A tensor in the caller's memory. Strides are counted in elements and may be anything but negative;
   where a run needs other ones it works on a copy. A tensor of rank 0 has one element. */
typedef struct {
    void *data;
    int32_t type;
    int32_t rank;
    int64_t sizes[TREADLE_MOST_DIMS];
    int64_t strides[TREADLE_MOST_DIMS];
} treadle_tensor;
/* What loading is told; all fields may be 0. */
typedef struct {
    const char *folder;            /* the package; 0: the current folder */
    const char *torch_library;     /* libtorch_cpu.so, if the package calls torch and it is not found */
    const treadle_tensor *weights; /* instead of the package's own, in the order below; kept by the caller */
    int64_t weight_count;
} treadle_options;
#endif

typedef struct treadle_$name treadle_$name;
enum { TREADLE_$NAME_INPUTS = $inputs, TREADLE_$NAME_OUTPUTS = $outputs, TREADLE_$NAME_WEIGHTS = $weights };

/* Load the package: weights are mapped and verified, the processor and torch are checked.
   Gives 0 if that failed, and `treadle_$name_error` says why. */
treadle_$name *treadle_$name_load(const treadle_options *options);
/* Type, rank, sizes and strides of the results for these inputs (their data is not looked at).
   0, or 1 if the inputs are not what the package takes. */
int treadle_$name_describe(treadle_$name *package, const treadle_tensor *inputs, treadle_tensor *outputs);
/* Run once. Results are written to `outputs[k].data`, which must not overlap any input.
   0, or 1 if something is not as it must be; then no result may be relied on. */
int treadle_$name_run(treadle_$name *package, const treadle_tensor *inputs, const treadle_tensor *outputs);
/* Weights that runs change are as they were when the package was loaded. */
void treadle_$name_reset(treadle_$name *package);
/* How many bytes of memory the package holds for runs now. */
int64_t treadle_$name_held(treadle_$name *package);
void treadle_$name_free(treadle_$name *package);
/* One line about what failed last in this thread. */
const char *treadle_$name_error(void);
/* The digest of what this was compiled from, as the manifest has it. */
const char *treadle_$name_id(void);
/* What the processor must have, names separated by spaces. */
const char *treadle_$name_features(void);

#ifdef __cplusplus
}
#endif
#endif
