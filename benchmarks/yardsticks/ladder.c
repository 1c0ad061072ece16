// The order book in plain C, on the memory of market.kernel.Ladder: what a loop without an
// interpreter, without options and without codes can do. It must leave the same bytes behind.
#include <stdint.h>

enum { TICKS = 1 << 18, LEAVES = TICKS >> 6, PARENTS = TICKS >> 12 };

typedef struct { uint32_t next, prev, quantity, level; } Order;
typedef struct { uint32_t head, tail; } Queue;
typedef struct { uint64_t leaf[LEAVES], parent[PARENTS], root; } Tree;
typedef struct { uint32_t taker, maker, tick, quantity; } Fill;
typedef struct { uint32_t kind, order, side, tick, quantity; } Request;
typedef struct { Order *pool; uint32_t capacity; Queue *queues; Tree *trees; Fill *fills; } Book;

static inline uint64_t bit(uint32_t place) { return 1ull << (place & 63); }

static inline void mark(Tree *tree, uint32_t tick) {
    tree->leaf[tick >> 6] |= bit(tick);
    tree->parent[tick >> 12] |= bit(tick >> 6);
    tree->root |= bit(tick >> 12);
}

static inline void unmark(Tree *tree, uint32_t tick) {
    if (tree->leaf[tick >> 6] &= ~bit(tick)) return;
    if (tree->parent[tick >> 12] &= ~bit(tick >> 6)) return;
    tree->root &= ~bit(tick >> 12);
}

static inline int64_t lowest(const Tree *tree) {
    if (!tree->root) return -1;
    uint32_t at = __builtin_ctzll(tree->root);
    at = at << 6 | __builtin_ctzll(tree->parent[at]);
    return at << 6 | __builtin_ctzll(tree->leaf[at]);
}

static inline int64_t highest(const Tree *tree) {
    if (!tree->root) return -1;
    uint32_t at = 63 - __builtin_clzll(tree->root);
    at = at << 6 | (63 - __builtin_clzll(tree->parent[at]));
    return at << 6 | (63 - __builtin_clzll(tree->leaf[at]));
}

static inline void cancel(Book *book, uint32_t id) {
    if (id < 1 || id > book->capacity || !book->pool[id].quantity) return;
    Order *order = &book->pool[id];
    Queue *queue = &book->queues[order->level];
    if (order->prev) book->pool[order->prev].next = order->next;
    else queue->head = order->next;
    if (order->next) book->pool[order->next].prev = order->prev;
    else queue->tail = order->prev;
    if (!queue->head) unmark(&book->trees[order->level >> 18], order->level & (TICKS - 1));
    order->quantity = 0;
}

static inline void place(Book *book, uint32_t id, uint32_t side, uint32_t tick, uint32_t left) {
    if (id < 1 || id > book->capacity || side > 1 || tick >= TICKS || !left) return;
    if (book->pool[id].quantity) return;
    uint32_t other = side ^ 1;
    while (left) {
        int64_t best = side ? highest(&book->trees[0]) : lowest(&book->trees[1]);
        if (best < 0 || (side ? best < tick : best > tick)) break;
        Queue *queue = &book->queues[other << 18 | (uint32_t)best];
        while (left && queue->head) {
            uint32_t maker_id = queue->head;
            Order *maker = &book->pool[maker_id];
            uint32_t quantity = maker->quantity < left ? maker->quantity : left;
            *book->fills++ = (Fill){id, maker_id, (uint32_t)best, quantity};
            left -= quantity;
            maker->quantity -= quantity;
            if (maker->quantity) break;
            queue->head = maker->next;
            if (maker->next) book->pool[maker->next].prev = 0;
            else queue->tail = 0;
        }
        if (!queue->head) unmark(&book->trees[other], (uint32_t)best);
    }
    if (!left) return;
    Queue *queue = &book->queues[side << 18 | tick];
    book->pool[id] = (Order){0, queue->tail, left, side << 18 | tick};
    if (queue->tail) book->pool[queue->tail].next = id;
    else {
        queue->head = id;
        mark(&book->trees[side], tick);
    }
    queue->tail = id;
}

long run(Order *pool, uint32_t capacity, Queue *queues, Tree *trees, Fill *fills,
         const Request *requests, long count) {
    Book book = {pool, capacity, queues, trees, fills};
    for (long n = 0; n < count; n++) {
        const Request *r = &requests[n];
        if (r->kind) cancel(&book, r->order);
        else place(&book, r->order, r->side, r->tick, r->quantity);
    }
    return book.fills - fills;
}
