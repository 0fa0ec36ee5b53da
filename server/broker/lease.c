#include "server/broker/lease.h"

#include "storage/base/alloc.h"

/* The window is a ring of slots, one for each offset in [frontier, frontier + window). A slot
 * points to a lease only while the offset is LEASED or SETTLING, so a settled or returned offset
 * costs 16 bytes. */
struct nd_lease_slot {
    struct nd_lease *lease; /* LEASED, SETTLING */
    uint32_t attempt;       /* deliveries so far */
    enum nd_lease_state state;
};

enum { CAPACITY_MIN = 16 };

static const uint32_t lease_next[] = {
    [ND_LEASE_FREE] = 1u << ND_LEASE_LEASED,
    [ND_LEASE_LEASED] = 1u << ND_LEASE_FREE | 1u << ND_LEASE_SETTLING,
    [ND_LEASE_SETTLING] = 1u << ND_LEASE_SETTLED | 1u << ND_LEASE_LEASED | 1u << ND_LEASE_FREE,
    [ND_LEASE_SETTLED] = 0,
};

static struct nd_lease_slot *slot_at(const struct nd_lease_table *table, uint64_t offset)
{
    ND_ASSERT(offset >= table->frontier && offset - table->frontier < table->window);
    uint32_t index = (table->head + (uint32_t)(offset - table->frontier)) & (table->capacity - 1);
    return &table->slots[index];
}

static void slot_move(struct nd_lease_slot *slot, enum nd_lease_state next)
{
    ND_ASSERT(lease_next[slot->state] & 1u << next);
    slot->state = next;
    if (slot->lease != NULL) {
        slot->lease->state = next;
    }
}

static void window_resize(struct nd_lease_table *table, uint32_t capacity)
{
    struct nd_lease_slot *slots = nd_xcalloc(capacity, sizeof *slots);

    for (uint32_t i = 0; i < table->window; i++) {
        slots[i] = table->slots[(table->head + i) & (table->capacity - 1)];
    }
    nd_free(table->slots);
    table->slots = slots;
    table->capacity = capacity;
    table->head = 0;
}

/* One FREE slot more, at frontier + window. */
static void window_push(struct nd_lease_table *table)
{
    if (table->window == table->capacity) {
        window_resize(table, table->capacity == 0 ? CAPACITY_MIN : table->capacity * 2);
    }
    table->window += 1;
    *slot_at(table, table->frontier + table->window - 1) = (struct nd_lease_slot){0};
}

/* The frontier passes one offset. */
static void window_pop(struct nd_lease_table *table)
{
    table->head = (table->head + 1) & (table->capacity - 1);
    table->window -= 1;
    table->frontier += 1;
    if (table->capacity > CAPACITY_MIN && table->window < table->capacity / 8) {
        window_resize(table, table->capacity / 2);
    }
}

static void frontier_advance(struct nd_lease_table *table)
{
    while (table->window > 0 && slot_at(table, table->frontier)->state == ND_LEASE_SETTLED) {
        table->ahead -= 1;
        window_pop(table);
    }
    table->free_hint = ND_MAX(table->free_hint, table->frontier);
}

void nd_lease_table_init(struct nd_lease_table *table, uint64_t frontier, uint32_t in_flight_max,
                         uint32_t ahead_max)
{
    *table = (struct nd_lease_table){.frontier = frontier, .free_hint = frontier};
    nd_heap_init(&table->expiries);
    nd_lease_table_set_caps(table, in_flight_max, ahead_max);
}

static void lease_drop(struct nd_lease_table *table, struct nd_lease *lease)
{
    nd_heap_remove(&table->expiries, &lease->expiry);
    nd_list_remove(&lease->owner_link);
    nd_free(lease);
}

void nd_lease_table_release(struct nd_lease_table *table)
{
    ND_ASSERT(table->detached == 0);
    for (uint32_t i = 0; i < table->window; i++) {
        struct nd_lease *lease = slot_at(table, table->frontier + i)->lease;
        if (lease != NULL) {
            lease_drop(table, lease);
        }
    }
    nd_heap_release(&table->expiries);
    nd_free(table->slots);
    *table = (struct nd_lease_table){0};
}

void nd_lease_table_set_caps(struct nd_lease_table *table, uint32_t in_flight_max,
                             uint32_t ahead_max)
{
    ND_ASSERT(in_flight_max > 0 && ahead_max > 0);
    table->in_flight_max = in_flight_max;
    table->ahead_max = ahead_max;
}

static void window_cover(struct nd_lease_table *table, uint64_t offset)
{
    while (table->frontier + table->window <= offset) {
        window_push(table);
    }
}

void nd_lease_table_load(struct nd_lease_table *table, const struct nd_positions *positions)
{
    ND_ASSERT(table->window == 0 && table->in_flight == 0);
    table->frontier = table->free_hint = positions->frontier;
    for (uint32_t i = 0; i < positions->ahead_count; i++) {
        const struct nd_offset_range *range = &positions->ahead[i];
        ND_ASSERT(range->first >= table->frontier && range->last >= range->first);
        window_cover(table, range->last);
        for (uint64_t offset = range->first; offset <= range->last; offset++) {
            struct nd_lease_slot *slot = slot_at(table, offset);
            if (slot->state == ND_LEASE_FREE) {
                slot->state = ND_LEASE_SETTLED;
                table->ahead += 1;
            }
        }
    }
    for (uint32_t i = 0; i < positions->attempts_count; i++) {
        const struct nd_attempt *attempt = &positions->attempts[i];
        if (attempt->offset >= table->frontier) {
            window_cover(table, attempt->offset);
            slot_at(table, attempt->offset)->attempt = attempt->count;
        }
    }
    frontier_advance(table);
}

static bool counts_as_settled(const struct nd_lease_slot *slot, bool with_settling)
{
    return slot->state == ND_LEASE_SETTLED || (with_settling && slot->state == ND_LEASE_SETTLING);
}

void nd_lease_table_store(const struct nd_lease_table *table, struct nd_positions *out,
                          bool with_settling)
{
    uint32_t ranges = 0;
    uint32_t attempts = 0;
    uint32_t start = 0;

    while (start < table->window &&
           counts_as_settled(slot_at(table, table->frontier + start), with_settling)) {
        start += 1;
    }
    out->frontier = table->frontier + start;
    out->ahead = nd_xrealloc(out->ahead, (table->window / 2 + 1) * sizeof *out->ahead);
    out->attempts = nd_xrealloc(out->attempts, (table->window + 1) * sizeof *out->attempts);
    for (uint32_t i = start; i < table->window; i++) {
        uint64_t offset = table->frontier + i;
        const struct nd_lease_slot *slot = slot_at(table, offset);
        if (!counts_as_settled(slot, with_settling)) {
            /* One that is out for the first time may come back settled: it needs no row. */
            if (slot->attempt > (slot->state == ND_LEASE_FREE ? 0 : 1)) {
                out->attempts[attempts++] = (struct nd_attempt){offset, slot->attempt};
            }
        } else if (ranges > 0 && out->ahead[ranges - 1].last + 1 == offset) {
            out->ahead[ranges - 1].last = offset;
        } else {
            out->ahead[ranges++] = (struct nd_offset_range){offset, offset};
        }
    }
    out->ahead_count = ranges;
    out->attempts_count = attempts;
}

/* The offset that a reserve would give, or UINT64_MAX. Moves the hint past what is not free. */
static uint64_t free_offset(struct nd_lease_table *table, uint64_t end, enum nd_reserve *why_out)
{
    *why_out = ND_RESERVE_EMPTY;
    if (table->frontier >= end) {
        return UINT64_MAX;
    }
    if (table->in_flight >= table->in_flight_max) {
        *why_out = ND_RESERVE_CAP;
        return UINT64_MAX;
    }
    if (table->ahead >= table->ahead_max) {
        /* Spiral breaker: fresh offsets would only be acked above the same hole. */
        *why_out = ND_RESERVE_CAP;
        bool hole_free =
            table->window == 0 || slot_at(table, table->frontier)->state == ND_LEASE_FREE;
        return hole_free ? table->frontier : UINT64_MAX;
    }
    uint64_t window_end = table->frontier + table->window;
    while (table->free_hint < window_end &&
           slot_at(table, table->free_hint)->state != ND_LEASE_FREE) {
        table->free_hint += 1;
    }
    return table->free_hint < end ? table->free_hint : UINT64_MAX;
}

enum nd_reserve nd_lease_reserve(struct nd_lease_table *table, uint64_t end, uint64_t nonce,
                                 uint64_t expiry_ns, void *owner, struct nd_lease **out)
{
    enum nd_reserve why;
    uint64_t offset = free_offset(table, end, &why);

    ND_ASSERT(nonce > 0);
    if (offset == UINT64_MAX) {
        return why;
    }
    window_cover(table, offset);
    struct nd_lease_slot *slot = slot_at(table, offset);
    struct nd_lease *lease = nd_xcalloc(1, sizeof *lease);
    nd_heap_node_init(&lease->expiry);
    nd_list_init(&lease->owner_link);
    lease->owner = owner;
    lease->offset = offset;
    lease->nonce = nonce;
    lease->expiry_ns = expiry_ns;
    lease->attempt = ++slot->attempt;
    slot->lease = lease;
    slot_move(slot, ND_LEASE_LEASED);
    nd_heap_put(&table->expiries, &lease->expiry, expiry_ns);
    table->in_flight += 1;
    *out = lease;
    return ND_RESERVE_OK;
}

struct nd_lease *nd_lease_find(struct nd_lease_table *table, uint64_t offset, uint64_t nonce)
{
    if (offset < table->frontier || offset - table->frontier >= table->window) {
        return NULL;
    }
    struct nd_lease *lease = slot_at(table, offset)->lease;
    return lease != NULL && lease->nonce == nonce ? lease : NULL;
}

void nd_lease_extend(struct nd_lease_table *table, struct nd_lease *lease, uint64_t expiry_ns)
{
    ND_ASSERT(lease->state == ND_LEASE_LEASED);
    lease->expiry_ns = expiry_ns;
    nd_heap_put(&table->expiries, &lease->expiry, expiry_ns);
}

/* The offset of `lease` is FREE again and the lease is gone. */
static void lease_to_free(struct nd_lease_table *table, struct nd_lease *lease)
{
    struct nd_lease_slot *slot = slot_at(table, lease->offset);

    slot_move(slot, ND_LEASE_FREE);
    slot->lease = NULL;
    table->in_flight -= 1;
    table->free_hint = ND_MIN(table->free_hint, lease->offset);
    lease_drop(table, lease);
}

void nd_lease_free_up(struct nd_lease_table *table, struct nd_lease *lease, bool delivered)
{
    ND_ASSERT(lease->state == ND_LEASE_LEASED);
    if (!delivered) {
        slot_at(table, lease->offset)->attempt -= 1;
    }
    lease_to_free(table, lease);
}

void nd_lease_settle_begin(struct nd_lease_table *table, struct nd_lease *lease)
{
    nd_heap_remove(&table->expiries, &lease->expiry);
    nd_list_remove(&lease->owner_link);
    lease->owner = NULL;
    slot_move(slot_at(table, lease->offset), ND_LEASE_SETTLING);
}

/* A SETTLING lease that a jump left behind has no slot any more: its outcome changes nothing. */
static bool drop_if_detached(struct nd_lease_table *table, struct nd_lease *lease)
{
    if (lease->offset >= table->frontier) {
        return false;
    }
    table->detached -= 1;
    table->in_flight -= 1;
    lease_drop(table, lease);
    return true;
}

void nd_lease_settle_done(struct nd_lease_table *table, struct nd_lease *lease)
{
    ND_ASSERT(lease->state == ND_LEASE_SETTLING);
    table->settled_total += 1;
    if (drop_if_detached(table, lease)) {
        return;
    }
    struct nd_lease_slot *slot = slot_at(table, lease->offset);
    slot_move(slot, ND_LEASE_SETTLED);
    slot->lease = NULL;
    table->in_flight -= 1;
    table->ahead += 1;
    lease_drop(table, lease);
    frontier_advance(table);
}

bool nd_lease_settle_failed(struct nd_lease_table *table, struct nd_lease *lease, uint64_t now_ns)
{
    ND_ASSERT(lease->state == ND_LEASE_SETTLING);
    if (drop_if_detached(table, lease)) {
        return false;
    }
    if (lease->expiry_ns <= now_ns) {
        lease_to_free(table, lease);
        return false;
    }
    slot_move(slot_at(table, lease->offset), ND_LEASE_LEASED);
    nd_heap_put(&table->expiries, &lease->expiry, lease->expiry_ns);
    return true;
}

uint32_t nd_lease_expire(struct nd_lease_table *table, uint64_t now_ns,
                         void (*expired)(void *arg, struct nd_lease *lease), void *arg)
{
    uint32_t count = 0;
    struct nd_heap_node *node;

    while ((node = nd_heap_first(&table->expiries)) != NULL && node->key <= now_ns) {
        struct nd_lease *lease = ND_CONTAINER_OF(node, struct nd_lease, expiry);
        if (expired != NULL) {
            expired(arg, lease);
        }
        lease_to_free(table, lease);
        count += 1;
    }
    return count;
}

uint64_t nd_lease_next_expiry(const struct nd_lease_table *table)
{
    const struct nd_heap_node *node = nd_heap_first(&table->expiries);

    return node == NULL ? UINT64_MAX : node->key;
}

void nd_lease_postpone(struct nd_lease_table *table, uint64_t by_ns)
{
    for (uint32_t i = 0; i < table->window; i++) {
        struct nd_lease *lease = slot_at(table, table->frontier + i)->lease;
        if (lease != NULL) {
            lease->expiry_ns += by_ns;
        }
    }
    /* All keys move alike, so the heap keeps its order. */
    for (uint32_t i = 0; i < table->expiries.count; i++) {
        table->expiries.nodes[i]->key += by_ns;
    }
}

uint64_t nd_lease_jump(struct nd_lease_table *table, uint64_t offset,
                       void (*dropped)(void *arg, struct nd_lease *lease), void *arg)
{
    uint64_t lost = 0;

    while (table->window > 0 && table->frontier < offset) {
        struct nd_lease_slot *slot = slot_at(table, table->frontier);
        switch (slot->state) {
        case ND_LEASE_FREE: lost += 1; break;
        case ND_LEASE_LEASED:
            lost += 1;
            if (dropped != NULL) {
                dropped(arg, slot->lease);
            }
            table->in_flight -= 1;
            lease_drop(table, slot->lease);
            break;
        case ND_LEASE_SETTLING: table->detached += 1; break;
        case ND_LEASE_SETTLED: table->ahead -= 1; break;
        }
        window_pop(table);
    }
    if (table->frontier < offset) {
        lost += offset - table->frontier;
        table->frontier = offset;
    }
    frontier_advance(table);
    return lost;
}

bool nd_lease_available(struct nd_lease_table *table, uint64_t end)
{
    enum nd_reserve why;

    return free_offset(table, end, &why) != UINT64_MAX;
}

void nd_lease_table_validate(const struct nd_lease_table *table)
{
    uint32_t in_flight = 0;
    uint32_t leased = 0;
    uint32_t ahead = 0;

    for (uint32_t i = 0; i < table->window; i++) {
        uint64_t offset = table->frontier + i;
        const struct nd_lease_slot *slot = slot_at(table, offset);
        bool out = slot->state == ND_LEASE_LEASED || slot->state == ND_LEASE_SETTLING;
        ND_ASSERT(out == (slot->lease != NULL));
        if (out) {
            ND_ASSERT(slot->lease->offset == offset && slot->lease->state == slot->state);
            ND_ASSERT(nd_heap_contains(&slot->lease->expiry) == (slot->state == ND_LEASE_LEASED));
        }
        ND_ASSERT(slot->state != ND_LEASE_FREE || offset >= table->free_hint);
        in_flight += out ? 1 : 0;
        leased += slot->state == ND_LEASE_LEASED ? 1 : 0;
        ahead += slot->state == ND_LEASE_SETTLED ? 1 : 0;
    }
    ND_ASSERT(in_flight + table->detached == table->in_flight);
    ND_ASSERT(leased == table->expiries.count);
    ND_ASSERT(ahead == table->ahead);
    ND_ASSERT(table->window == 0 || slot_at(table, table->frontier)->state != ND_LEASE_SETTLED);
}
