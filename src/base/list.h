// SPDX-License-Identifier: MPL-2.0
/* Intrusive circular doubly linked list. A node that is in no list points at itself after
 * list_init() or list_remove(), so removing twice is harmless. */
#ifndef HOLDFAST_BASE_LIST_H
#define HOLDFAST_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next;
    struct list *prev;
};

#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void list_init(struct list *l) {
    l->next = l;
    l->prev = l;
}

static inline bool list_is_empty(const struct list *l) {
    return l->next == l;
}

static inline void list_insert_before(struct list *at, struct list *node) {
    node->next = at;
    node->prev = at->prev;
    at->prev->next = node;
    at->prev = node;
}

static inline void list_append(struct list *head, struct list *node) {
    list_insert_before(head, node);
}

static inline void list_prepend(struct list *head, struct list *node) {
    list_insert_before(head->next, node);
}

static inline void list_remove(struct list *node) {
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/* The first node, unlinked; NULL from an empty list. */
static inline struct list *list_pop(struct list *head) {
    if (list_is_empty(head)) {
        return NULL;
    }
    struct list *node = head->next;
    list_remove(node);
    return node;
}

#define LIST_FOR_EACH(it, head) for (struct list *it = (head)->next; it != (head); it = it->next)
#define LIST_FOR_EACH_SAFE(it, head)                                                               \
    for (struct list *it = (head)->next, *it##_next = it->next; it != (head);                      \
         it = it##_next, it##_next = it->next)

#endif
