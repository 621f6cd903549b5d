/* The inner loops of the memory planner: placing items one by one in a given order, and the
 * exact search. Both do exactly what fits.py and search_python.py do, step for step; comments
 * on the ideas stand there. Addresses are on one line of regions; sections are moments.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int64_t i64;
typedef int32_t i32;

#define HUGE_ADDRESS ((i64)1 << 61)
#define CLOCK_STEP 128

typedef struct {
    i32 n, sections, regions;
    const i64 *size, *alignment, *fixed; /* fixed: -1 where it is not */
    const i32 *span_at, *span;           /* spans of i: pairs from span_at[i] to span_at[i + 1] */
    const i32 *open_at, *open;           /* regions open to i, ascending */
    const i64 *base, *end;               /* of each region */
    i64 limit;                           /* where the arena ends */
} Line;

static i64 up_to(i64 x, i64 alignment)
{
    i64 r = x % alignment;
    return r ? x + alignment - r : x;
}

static i64 legal(const Line *l, i32 i, i64 address)
{
    if (l->fixed[i] >= 0)
        return l->fixed[i] >= address && l->fixed[i] + l->size[i] <= l->limit ? l->fixed[i]
                                                                              : HUGE_ADDRESS;
    for (i32 k = l->open_at[i]; k < l->open_at[i + 1]; k++) {
        i32 r = l->open[k];
        i64 start = up_to(address > l->base[r] ? address : l->base[r], l->alignment[i]);
        i64 end = l->end[r] < l->limit ? l->end[r] : l->limit;
        if (start + l->size[i] <= end)
            return start;
    }
    return HUGE_ADDRESS;
}

static i64 now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (i64)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ---- placing in a given order ---------------------------------------------------------- */

typedef struct {
    i64 *edge;
    i32 count, room;
} Set; /* disjoint ranges: edge[0] <= x < edge[1], edge[2] <= x < edge[3], ... */

static i32 lower_index(const Set *s, i64 x)
{
    i32 a = 0, b = s->count;
    while (a < b) {
        i32 m = (a + b) / 2;
        if (s->edge[m] < x) a = m + 1; else b = m;
    }
    return a;
}

static i32 upper_index(const Set *s, i64 x)
{
    i32 a = 0, b = s->count;
    while (a < b) {
        i32 m = (a + b) / 2;
        if (s->edge[m] <= x) a = m + 1; else b = m;
    }
    return a;
}

static int set_add(Set *s, i64 a, i64 b)
{
    i32 i = lower_index(s, a), j = upper_index(s, b);
    i32 extra = (i % 2 == 0) + (j % 2 == 0);
    i32 count = s->count - (j - i) + extra;
    if (count > s->room) {
        i32 room = count * 2 + 6;
        i64 *edge = realloc(s->edge, sizeof(i64) * (size_t)room);
        if (!edge) return 0;
        s->edge = edge;
        s->room = room;
    }
    memmove(s->edge + i + extra, s->edge + j, sizeof(i64) * (size_t)(s->count - j));
    if (i % 2 == 0) s->edge[i++] = a;
    if (j % 2 == 0) s->edge[i] = b;
    s->count = count;
    return 1;
}

typedef struct {
    i64 a, b;
} Range;

typedef struct {
    Set *touch, *cover; /* a tree over sections: node 1 is all of them, leaf `leaves + s` one */
    i32 leaves;
    Range *found;
    i64 count, room;
} Tree;

static int gather(Tree *t, const Set *s)
{
    i64 more = s->count / 2;
    if (t->count + more > t->room) {
        i64 room = (t->count + more) * 2;
        Range *found = realloc(t->found, sizeof(Range) * (size_t)room);
        if (!found) return 0;
        t->found = found;
        t->room = room;
    }
    for (i32 k = 0; k < s->count; k += 2) {
        t->found[t->count].a = s->edge[k];
        t->found[t->count++].b = s->edge[k + 1];
    }
    return 1;
}

static int tree_add(Tree *t, i32 first, i32 last, i64 a, i64 b)
{
    i32 l = first + t->leaves, r = last + t->leaves, done = 1;
    for (i32 x = l, y = r; x < y; x /= 2, y /= 2) {
        if (x & 1) done &= set_add(&t->cover[x], a, b) & set_add(&t->touch[x], a, b), x++;
        if (y & 1) y--, done &= set_add(&t->cover[y], a, b) & set_add(&t->touch[y], a, b);
    }
    /* The paths to the root from both ends hold every node that is only partly covered. */
    for (i32 x = l / 2; x; x /= 2) done &= set_add(&t->touch[x], a, b);
    for (i32 y = (r - 1) / 2; y; y /= 2) done &= set_add(&t->touch[y], a, b);
    return done;
}

static int tree_find(Tree *t, i32 first, i32 last)
{
    i32 l = first + t->leaves, r = last + t->leaves, done = 1;
    for (i32 x = l, y = r; x < y; x /= 2, y /= 2) {
        if (x & 1) done &= gather(t, &t->touch[x++]);
        if (y & 1) done &= gather(t, &t->touch[--y]);
    }
    for (i32 x = l / 2; x; x /= 2) done &= gather(t, &t->cover[x]);
    for (i32 y = (r - 1) / 2; y; y /= 2) done &= gather(t, &t->cover[y]);
    return done;
}

static int by_start(const void *p, const void *q)
{
    i64 a = ((const Range *)p)->a, b = ((const Range *)q)->a;
    return (a > b) - (a < b);
}

typedef struct {
    i64 address, room;
} Choice;

static void consider(const Line *l, i32 i, i64 a, i64 b, int best, Choice *c)
{
    if (b - a < l->size[i]) return;
    for (i32 k = l->open_at[i]; k < l->open_at[i + 1]; k++) {
        i32 r = l->open[k];
        i64 low = a > l->base[r] ? a : l->base[r], high = b < l->end[r] ? b : l->end[r];
        i64 start = up_to(low, l->alignment[i]);
        if (start + l->size[i] > high) continue;
        if (c->address == HUGE_ADDRESS || (best && high - low < c->room)) {
            c->address = start;
            c->room = high - low;
        }
    }
}

static i64 choose(const Line *l, i32 i, Tree *t, int best)
{
    Choice c = {HUGE_ADDRESS, 0};
    i64 free_from = 0;
    qsort(t->found, (size_t)t->count, sizeof(Range), by_start);
    if (l->fixed[i] >= 0) {
        for (i64 k = 0; k < t->count; k++)
            if (t->found[k].a < l->fixed[i] + l->size[i] && l->fixed[i] < t->found[k].b)
                return HUGE_ADDRESS;
        return l->fixed[i];
    }
    for (i64 k = 0; k < t->count; k++) {
        if (t->found[k].a > free_from) {
            consider(l, i, free_from, t->found[k].a, best, &c);
            if (!best && c.address != HUGE_ADDRESS) return c.address;
        }
        if (t->found[k].b > free_from) free_from = t->found[k].b;
    }
    consider(l, i, free_from, HUGE_ADDRESS, best, &c);
    return c.address;
}

static i32 fit_all(const Line *l, const i32 *order, int best, i64 deadline, i64 *offset, Tree *t)
{
    for (i32 k = 0; k < l->n; k++) {
        if (deadline >= 0 && k % CLOCK_STEP == 0 && now() > deadline) return -1;
        i32 i = order[k];
        t->count = 0;
        for (i32 p = l->span_at[i]; p < l->span_at[i + 1]; p++)
            if (!tree_find(t, l->span[2 * p], l->span[2 * p + 1])) return -2;
        offset[i] = choose(l, i, t, best);
        if (offset[i] == HUGE_ADDRESS) return 0;
        for (i32 p = l->span_at[i]; p < l->span_at[i + 1]; p++)
            if (!tree_add(t, l->span[2 * p], l->span[2 * p + 1], offset[i],
                          offset[i] + l->size[i]))
                return -2;
    }
    return 1;
}

/* 1: every item has an address; 0: one had nowhere to go; -1: more than so many microseconds
 * passed (negative: any may); -2: out of memory. */
i32 treadle_fit(const Line *l, const i32 *order, i32 best, i64 microseconds, i64 *offset)
{
    Tree t = {0};
    i32 status = -2;
    i64 deadline = microseconds < 0 ? -1 : now() + microseconds;
    t.leaves = 1;
    while (t.leaves < l->sections) t.leaves *= 2;
    t.touch = calloc((size_t)t.leaves * 2, sizeof(Set));
    t.cover = calloc((size_t)t.leaves * 2, sizeof(Set));
    t.room = 64;
    t.found = malloc(sizeof(Range) * 64);
    if (t.touch && t.cover && t.found) status = fit_all(l, order, best, deadline, offset, &t);
    for (i32 k = 0; k < t.leaves * 2; k++) {
        if (t.touch) free(t.touch[k].edge);
        if (t.cover) free(t.cover[k].edge);
    }
    free(t.touch);
    free(t.cover);
    free(t.found);
    return status;
}

/* ---- exact search ---------------------------------------------------------------------- */

typedef struct {
    i64 *place, old;
} Change; /* old == -1 - i in a change without a place: item i was placed */

typedef struct {
    const Line *l;
    const i32 *rank, *twin;
    i32 rule;
    i64 nodes, node_limit, deadline; /* deadline: in microseconds, or negative */
    i32 *here_at, *here; /* items of each section */
    i64 *floor, *base, *rest, *low, *offset;
    i64 *trouble;        /* how often each section was overfull, over all walks so far */
    i32 *count, *last;   /* unplaced items of a section; one past the last section of an item */
    char *placed, *queued;
    i32 *queue, queue_count;
    Change *trail;
    i64 trail_count, trail_room;
    i32 *candidates, candidate_count;
    int out_of_memory;
} Search;

#define EACH_SECTION(i, t)                                                        \
    for (i32 p_ = l->span_at[i]; p_ < l->span_at[(i) + 1]; p_++)                  \
        for (i32 t = l->span[2 * p_]; t < l->span[2 * p_ + 1]; t++)
#define EACH_ITEM(s, i) \
    for (i32 k_ = z->here_at[s], i; k_ < z->here_at[(s) + 1] && (i = z->here[k_], 1); k_++)

static void note(Search *z, i64 *place, i64 old)
{
    if (z->trail_count == z->trail_room) {
        i64 room = z->trail_room * 2;
        Change *trail = realloc(z->trail, sizeof(Change) * (size_t)room);
        if (!trail) {
            z->out_of_memory = 1;
            return;
        }
        z->trail = trail;
        z->trail_room = room;
    }
    z->trail[z->trail_count].place = place;
    z->trail[z->trail_count++].old = old;
}

static void set(Search *z, i64 *place, i64 value)
{
    note(z, place, *place);
    *place = value;
}

static void undo(Search *z, i64 mark)
{
    const Line *l = z->l;
    while (z->trail_count > mark) {
        Change c = z->trail[--z->trail_count];
        if (c.place) {
            *c.place = c.old;
            continue;
        }
        i32 i = (i32)(-1 - c.old);
        z->placed[i] = 0;
        EACH_SECTION(i, t) {
            z->rest[t] += l->size[i];
            z->count[t]++;
        }
    }
}

static void push(Search *z, i32 s)
{
    if (!z->queued[s]) {
        z->queued[s] = 1;
        z->queue[z->queue_count++] = s;
    }
}

static int raise_floor(Search *z, i32 s)
{
    i64 lowest = HUGE_ADDRESS;
    if (!z->count[s]) return 1;
    EACH_ITEM(s, j) if (!z->placed[j] && z->low[j] < lowest) lowest = z->low[j];
    if (lowest > z->floor[s]) {
        set(z, &z->floor[s], lowest);
        if (lowest + z->rest[s] > z->l->limit) {
            z->trouble[s]++;
            return 0;
        }
        push(z, s);
    }
    return 1;
}

static i64 rest_on(Search *z, i32 i)
{
    const Line *l = z->l;
    i64 highest = 0;
    EACH_SECTION(i, t) if (z->base[t] > highest) highest = z->base[t];
    return legal(l, i, highest);
}

static int could_drop(Search *z, i32 i)
{
    const Line *l = z->l;
    i64 start = rest_on(z, i), top = start + l->size[i];
    if (start >= z->low[i]) return 0;
    EACH_SECTION(i, t) {
        if (z->floor[t] >= top) continue;
        EACH_ITEM(t, j) if (j != i && !z->placed[j] && z->low[j] < top) return 0;
    }
    return 1;
}

static int raise_items(Search *z, i32 s)
{
    const Line *l = z->l;
    EACH_ITEM(s, i) {
        if (z->placed[i] || z->low[i] >= z->floor[s]) continue;
        i64 old = z->low[i], low = legal(l, i, z->floor[s]);
        if (low == HUGE_ADDRESS) return 0;
        set(z, &z->low[i], low);
        EACH_SECTION(i, t) if (z->floor[t] <= old && !raise_floor(z, t)) return 0;
        if (could_drop(z, i)) return 0;
    }
    return 1;
}

static int settle(Search *z)
{
    while (z->queue_count) {
        i32 s = z->queue[--z->queue_count];
        z->queued[s] = 0;
        if (!raise_items(z, s) || !raise_floor(z, s)) {
            while (z->queue_count) z->queued[z->queue[--z->queue_count]] = 0;
            return 0;
        }
    }
    return 1;
}

static i32 candidates_at(Search *z, i32 s, i64 f)
{
    i32 found = 0;
    EACH_ITEM(s, i) if (!z->placed[i] && z->low[i] == f) found++;
    return found;
}

static i32 pick_section(Search *z, i32 x, i32 y, i64 f)
{
    i32 best = -1;
    i64 best_a = 0, best_b = 0;
    for (i32 s = x; s < y; s++) {
        if (!z->count[s] || z->floor[s] != f) continue;
        i64 a = 0, b = 0;
        if (z->rule == 0) a = -z->rest[s];
        else if (z->rule == 1) a = candidates_at(z, s, f), b = -z->rest[s];
        else if (z->rule == 2) a = s;
        else if (z->rule == 3) a = -s;
        else a = -z->trouble[s], b = -z->rest[s];
        if (best < 0 || a < best_a || (a == best_a && b < best_b)) {
            best = s;
            best_a = a;
            best_b = b;
        }
    }
    return best;
}

/* Candidates for address f of section s, best rank first, from `from` on in z->candidates. */
static void collect(Search *z, i32 s, i64 f, i32 from)
{
    i32 end = from;
    EACH_ITEM(s, i) {
        if (z->placed[i] || z->low[i] != f || rest_on(z, i) != f) continue;
        int repeated = 0;
        for (i32 k = from; k < end; k++) repeated |= z->twin[z->candidates[k]] == z->twin[i];
        if (repeated) continue;
        i32 k = end++;
        for (; k > from && z->rank[z->candidates[k - 1]] > z->rank[i]; k--)
            z->candidates[k] = z->candidates[k - 1];
        z->candidates[k] = i;
    }
    z->candidate_count = end;
}

static int put(Search *z, i32 i, i64 f)
{
    const Line *l = z->l;
    note(z, NULL, -1 - (i64)i);
    z->placed[i] = 1;
    z->offset[i] = f;
    EACH_SECTION(i, t) {
        z->rest[t] -= l->size[i];
        z->count[t]--;
        set(z, &z->base[t], f + l->size[i]);
        set(z, &z->floor[t], f + l->size[i]);
        push(z, t);
    }
    return settle(z);
}

/* The lowest address above f at which anything can start in section s, if nothing starts at f. */
static i64 next_floor(Search *z, i32 s, i32 x, i32 y, i64 f)
{
    const Line *l = z->l;
    i64 next = HUGE_ADDRESS;
    for (i32 i = 0; i < l->n; i++) {
        i32 first = l->span[2 * l->span_at[i]];
        if (z->placed[i] || first < x || first >= y) continue;
        int is_here = 0;
        for (i32 p = l->span_at[i]; p < l->span_at[i + 1]; p++)
            is_here |= l->span[2 * p] <= s && s < l->span[2 * p + 1];
        i64 address = is_here ? z->low[i] : z->low[i] + l->size[i];
        if (address > f && address < next) next = address;
    }
    return next;
}

static int is_over(const Search *z)
{
    if (z->nodes >= z->node_limit || z->out_of_memory) return 1;
    return z->deadline >= 0 && z->nodes % CLOCK_STEP == 0 && now() > z->deadline;
}

static int solve_parts(Search *z, i32 x, i32 y);

/* 1 solved, 0 impossible, -1 out of nodes or time. */
static int solve(Search *z, i32 x, i32 y)
{
    i32 from = z->candidate_count;
    for (;;) {
        if (is_over(z)) return -1;
        z->nodes++;
        i64 f = HUGE_ADDRESS;
        for (i32 s = x; s < y; s++) if (z->count[s] && z->floor[s] < f) f = z->floor[s];
        i32 s = pick_section(z, x, y, f);
        collect(z, s, f, from);
        i32 end = z->candidate_count;
        for (i32 k = from; k < end; k++) {
            i64 mark = z->trail_count;
            int status = put(z, z->candidates[k], f) ? solve_parts(z, x, y) : 0;
            z->candidate_count = end;
            if (status) return status;
            undo(z, mark);
        }
        z->candidate_count = from;
        i64 next = next_floor(z, s, x, y, f);
        if (next + z->rest[s] > z->l->limit) return 0;
        set(z, &z->floor[s], next);
        push(z, s);
        if (!settle(z)) return 0;
    }
}

static int solve_parts(Search *z, i32 x, i32 y)
{
    i32 s = x;
    while (s < y) {
        if (!z->count[s]) {
            s++;
            continue;
        }
        i32 start = s, reach = s + 1;
        for (; s < reach; s++)
            EACH_ITEM(s, i) if (!z->placed[i] && z->last[i] > reach) reach = z->last[i];
        int status = solve(z, start, reach);
        if (status != 1) return status;
    }
    return 1;
}

static int begin(Search *z)
{
    const Line *l = z->l;
    for (i32 i = 0; i < l->n; i++) {
        z->low[i] = legal(l, i, 0);
        if (z->low[i] == HUGE_ADDRESS) return 0;
        EACH_SECTION(i, t) {
            z->rest[t] += l->size[i];
            z->count[t]++;
            z->here_at[t + 1]++;
            z->last[i] = t + 1;
        }
    }
    for (i32 s = 0; s < l->sections; s++) z->here_at[s + 1] += z->here_at[s];
    z->here = malloc(sizeof(i32) * (size_t)(z->here_at[l->sections] + 1));
    if (!z->here) return -2;
    for (i32 i = 0; i < l->n; i++) EACH_SECTION(i, t) z->here[z->here_at[t]++] = i;
    for (i32 s = l->sections; s > 0; s--) z->here_at[s] = z->here_at[s - 1];
    z->here_at[0] = 0;
    for (i32 s = 0; s < l->sections; s++) {
        if (z->rest[s] > l->limit) return 0;
        if (!raise_floor(z, s)) return 0;
    }
    return settle(z);
}

/* 1: offsets are a solution below l->limit; 0: there is none; -1: out of nodes; -2: of memory.
 * numbers: in, the most nodes to visit and the microseconds it may take (negative: any); out,
 * the nodes visited. */
i32 treadle_search(const Line *l, const i32 *rank, const i32 *twin, i32 rule, i64 *numbers,
                   i64 *trouble, i64 *offset)
{
    size_t n = (size_t)l->n + 1, m = (size_t)l->sections + 1;
    Search z = {.l = l, .rank = rank, .twin = twin, .rule = rule, .offset = offset};
    z.trouble = trouble;
    z.node_limit = numbers[0];
    z.deadline = numbers[1] < 0 ? -1 : now() + numbers[1];
    z.trail_room = 1024;
    i64 *wide = calloc(3 * m + n, sizeof(i64));
    i32 *narrow = calloc(4 * m + n, sizeof(i32));
    char *bytes = calloc(m + n, 1);
    z.trail = malloc(sizeof(Change) * 1024);
    i32 status = -2;
    if (wide && narrow && bytes && z.trail) {
        z.floor = wide, z.base = wide + m, z.rest = wide + 2 * m, z.low = wide + 3 * m;
        z.here_at = narrow, z.count = narrow + m, z.queue = narrow + 2 * m, z.last = narrow + 4 * m;
        z.placed = bytes, z.queued = bytes + n;
        status = begin(&z);
        /* At most n nodes are open, each with the candidates of one section. */
        i32 most = 1;
        for (i32 s = 0; status == 1 && s < l->sections; s++)
            if (z.here_at[s + 1] - z.here_at[s] > most) most = z.here_at[s + 1] - z.here_at[s];
        z.candidates = malloc(sizeof(i32) * n * (size_t)most);
        if (!z.candidates) status = -2;
        if (status == 1) status = solve_parts(&z, 0, l->sections);
        if (z.out_of_memory) status = -2;
    }
    numbers[0] = z.nodes;
    free(wide), free(narrow), free(bytes), free(z.here), free(z.candidates), free(z.trail);
    return status;
}
