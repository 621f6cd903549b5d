/* Stores that go past the caches, where a nest touches more memory than the last of them holds.

   What is stored there is fetched first otherwise, and has left the cache again before anybody
   reads it. How large the cache is, the C library says (on x86 of glibc's number for it). */
#ifdef TR_WHOLE
#if defined(TR_LAST_CACHE)
#elif defined(__GLIBC__)
long sysconf(int);
#define TR_LAST_CACHE sysconf(194)
#else
#define TR_LAST_CACHE 0
#endif
/* By an eighth more at least: sizes of both are a little off. */
TR_FN int tr_goes_past(int64_t bytes)
{
    static int64_t known = -1;
    int64_t last = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (last < 0) __atomic_store_n(&known, last = TR_LAST_CACHE, __ATOMIC_RELAXED);
    return last > 0 && bytes > last + last / 8;
}
TR_INSIDE void tr_w_stream(int goes_past, float *p, tr_w x)
{
    if (goes_past && !((uintptr_t)p % sizeof x)) {
#if TR_W == 16
        __builtin_ia32_movntps512(p, x);
#else
        __builtin_ia32_movntps256(p, x);
#endif
    } else
        tr_w_store(p, x);
}
/* Before another thread is told that all is there. */
#define TR_ARRIVED __builtin_ia32_sfence()
#else
#define TR_ARRIVED (void)0
TR_FN int tr_goes_past(int64_t bytes) { return (void)bytes, 0; }
#endif
