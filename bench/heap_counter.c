/* Counts what a process has from malloc, loaded before everything else (LD_PRELOAD; glibc).
 *
 * heap_mark() gives what is held and begins anew to look for the most; heap_most() says it. Bytes
 * are those that malloc can give away, a little more than was asked for.
 */
#include <errno.h>
#include <malloc.h>
#include <stddef.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_memalign(size_t, size_t);
extern void *__libc_realloc(void *, size_t), __libc_free(void *);

static long held, most;

static void *more(void *p)
{
    long now = __atomic_add_fetch(&held, (long)malloc_usable_size(p), __ATOMIC_RELAXED);
    long seen = __atomic_load_n(&most, __ATOMIC_RELAXED);
    while (now > seen
           && !__atomic_compare_exchange_n(&most, &seen, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return p;
}

static void less(void *p) { __atomic_sub_fetch(&held, (long)malloc_usable_size(p), __ATOMIC_RELAXED); }

void *malloc(size_t n) { return more(__libc_malloc(n)); }
void *calloc(size_t n, size_t size) { return more(__libc_calloc(n, size)); }
void *memalign(size_t at, size_t n) { return more(__libc_memalign(at, n)); }
void *aligned_alloc(size_t at, size_t n) { return more(__libc_memalign(at, n)); }
void free(void *p) { less(p); __libc_free(p); }

void *realloc(void *p, size_t n)
{
    long before = (long)malloc_usable_size(p);
    void *made = __libc_realloc(p, n);
    if (made || !n) __atomic_sub_fetch(&held, before, __ATOMIC_RELAXED);
    return more(made);
}

int posix_memalign(void **made, size_t at, size_t n)
{
    *made = memalign(at, n);
    return *made || !n ? 0 : ENOMEM;
}

long heap_mark(void)
{
    __atomic_store_n(&most, held, __ATOMIC_RELAXED);
    return held;
}

long heap_most(void) { return most; }
