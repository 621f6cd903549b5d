/* From Python into a host function and back: one text for all graphs, what differs is a record.
 *
 * The functions of CPython's stable interface come as a table of addresses, so that no header of
 * Python's is needed and nothing has to be found when this is loaded. The interpreter is let go of
 * while the host function runs. Gives a list of tensors; None if an argument lies in another way
 * than the plan expects (then nothing has happened yet); or the number of what failed.
 */
#include <stddef.h>
#include <stdint.h>

typedef void object;

enum { LIST_ITEM, LIST_SET, LIST_NEW, CALL, CALL_METHOD, AS_NUMBER, FROM_NUMBER, IS_TRUE,
       CAPSULE_NEW, CAPSULE_POINTER, INCREF, DECREF, SAVE_THREAD, RESTORE_THREAD, CLEAR_ERROR,
       AS_TUPLE, CALL_TUPLE, FUNCTIONS };
static void *const *python;

void treadle_enter_link(void *const *table) { python = table; }

#define list_item ((object *(*)(object *, ptrdiff_t))python[LIST_ITEM])
#define list_set ((int (*)(object *, ptrdiff_t, object *))python[LIST_SET])
#define list_new ((object *(*)(ptrdiff_t))python[LIST_NEW])
#define call ((object *(*)(object *, ...))python[CALL])
#define call_method ((object *(*)(object *, object *, ...))python[CALL_METHOD])
#define as_number ((long long (*)(object *))python[AS_NUMBER])
#define from_number ((object *(*)(long long))python[FROM_NUMBER])
#define is_true ((int (*)(object *))python[IS_TRUE])
#define capsule_new ((object *(*)(void *, const char *, void *))python[CAPSULE_NEW])
#define capsule_pointer ((void *(*)(object *, const char *))python[CAPSULE_POINTER])
#define incref ((void (*)(object *))python[INCREF])
#define decref ((void (*)(object *))python[DECREF])
#define save_thread ((void *(*)(void))python[SAVE_THREAD])
#define restore_thread ((void (*)(void *))python[RESTORE_THREAD])
#define clear_error ((void (*)(void))python[CLEAR_ERROR])
#define as_tuple ((object *(*)(object *))python[AS_TUPLE])
#define call_tuple ((object *(*)(object *, object *))python[CALL_TUPLE])

typedef struct {
    int64_t (*host)(const int64_t *, const int64_t *, int64_t *);
    const int64_t *numbers;
    int64_t inputs, owned, checked, results;
    const int64_t *positions; /* of inputs (-1: a constant), of owned ones, of those only checked */
    object **constants, **sizes, **strides; /* sizes and strides: of inputs, then of checked ones */
    object *none, *check, *is_neg, *data_ptr, *handle_of, *steal, *storage, *nbytes;
    object *modes; /* may be missing */
    int64_t pools, alignment;
    const int64_t *pool; /* which inputs others will lie in */
    const int64_t *whole; /* for each of these: the bytes its storage must have, or -1 */
    const int64_t *reach; /* bytes that inputs, then those only checked, reach over */
    object *alike; /* whether all arguments are as some were that lay as expected; may be missing */
    object *learn; /* makes `alike` of arguments that do; may be missing */
    int64_t least; /* every address must be a multiple of it */
} record;

/* Whether a tensor lies as the plan expects. */
static int lies(const record *r, object *tensor, int64_t k)
{
    object *found = call(r->check, tensor, r->sizes[k], r->strides[k], NULL);
    if (!found) { clear_error(); return 0; }
    decref(found);
    found = call_method(tensor, r->is_neg, NULL);
    if (!found) { clear_error(); return 0; }
    int negative = is_true(found);
    decref(found);
    return !negative;
}

/* What a method without arguments gives as a number; -1 if it fails. */
static int64_t asked_number(object *one, object *method)
{
    object *found = call_method(one, method, NULL);
    if (!found) { clear_error(); return -1; }
    int64_t number = as_number(found);
    decref(found);
    return number;
}

/* Whether nobody else looks at the memory of inputs that others will lie in. */
static int are_free(const record *r, object *given, const int64_t *addresses)
{
    int64_t all = r->inputs + r->checked, places[all + 1];
    const int64_t *unseen = r->positions + r->inputs + r->owned;
    for (int64_t k = 0; k < r->inputs; ++k) places[k] = addresses[k];
    for (int64_t k = 0; k < r->checked; ++k) {
        places[r->inputs + k] = asked_number(list_item(given, unseen[k]), r->data_ptr);
    }
    for (int64_t p = 0; p < r->pools; ++p) {
        int64_t own = r->pool[p], start = places[own], end = start + r->reach[own];
        if (start % r->alignment) return 0;
        for (int64_t k = 0; k < all; ++k)
            if (k != own && places[k] < end && start < places[k] + r->reach[k]) return 0;
        if (r->whole[p] < 0) continue;
        object *tensor = list_item(given, r->positions[own]);
        object *storage = call_method(tensor, r->storage, NULL);
        if (!storage) { clear_error(); return 0; }
        int64_t bytes = asked_number(storage, r->nbytes);
        decref(storage);
        if (bytes != r->whole[p]) return 0;
    }
    return 1;
}

/* Whether all arguments are as others were that lay as expected: one question instead of many. */
static int are_alike(const record *r, object *given)
{
    if (!r->alike) return 0;
    object *tuple = as_tuple(given);
    if (!tuple) { clear_error(); return 0; }
    object *found = call_tuple(r->alike, tuple);
    decref(tuple);
    if (!found) { clear_error(); return 0; }
    int truth = is_true(found);
    decref(found);
    return truth;
}

static int take(const record *r, object *given, int64_t *addresses)
{
    const int64_t *at = r->positions;
    int known = are_alike(r, given);
    for (int64_t k = 0; k < r->inputs; ++k) {
        object *tensor = at[k] < 0 ? r->constants[k] : list_item(given, at[k]);
        if (!tensor) { clear_error(); return 0; }
        if (at[k] >= 0 && !known && !lies(r, tensor, k)) return 0;
        addresses[k] = asked_number(tensor, r->data_ptr);
        /* Torch's check takes an empty tensor for one of any sizes; nothing can be read there. */
        if (addresses[k] < 0 || (!addresses[k] && r->reach[k])) return 0;
        if (addresses[k] % r->least) return 0;
    }
    at += r->inputs + r->owned;
    for (int64_t k = 0; k < r->checked; ++k) {
        object *tensor = list_item(given, at[k]);
        if (!tensor) { clear_error(); return 0; }
        if (!known && !lies(r, tensor, r->inputs + k)) return 0;
    }
    if (!known && r->learn) {
        object *done = call(r->learn, given, NULL);
        if (!done) clear_error(); else decref(done);
    }
    return 1;
}

/* Whether some mode of torch's wants to see every call. */
static int has_modes(const record *r)
{
    object *found = call(r->modes, NULL);
    if (!found) { clear_error(); return 1; }
    int truth = is_true(found);
    decref(found);
    return truth;
}

object *treadle_enter(object *self, object *given)
{
    const record *r = capsule_pointer(self, NULL);
    int64_t addresses[r->inputs + r->owned + 1], results[r->results + 1];
    int ready = !r->modes || !has_modes(r);
    ready = ready && take(r, given, addresses) && (!r->pools || are_free(r, given, addresses));
    if (!ready) { incref(r->none); return r->none; }
    for (int64_t k = 0; k < r->owned; ++k) {
        int64_t at = r->positions[r->inputs + k];
        object *capsule = call(r->handle_of, list_item(given, at), NULL);
        if (!capsule) return NULL;
        addresses[r->inputs + k] = (int64_t)capsule_pointer(capsule, NULL);
        decref(capsule);
        incref(r->none);
        list_set(given, at, r->none);
    }
    void *thread = save_thread();
    int64_t status = r->host(addresses, r->numbers, results);
    restore_thread(thread);
    if (status) return from_number(status);
    object *capsules = list_new(r->results);
    if (!capsules) return NULL;
    for (int64_t k = 0; k < r->results; ++k)
        list_set(capsules, k, capsule_new((void *)results[k], NULL, NULL));
    if (!r->results) return capsules;
    object *tensors = call(r->steal, capsules, NULL);
    decref(capsules);
    return tensors;
}
