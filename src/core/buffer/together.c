#include "core/buffer/together.h"

#include <stdlib.h>

#include "core/buffer/guard.h"

static void append(struct gb_together *to, struct gb_buffer *first, struct gb_buffer *last) {
    first->together_before = to->last;
    if (to->last)
        to->last->together_next = first;
    else
        to->first = first;
    to->last = last;
}

static void prepend(struct gb_together *to, struct gb_buffer *first, struct gb_buffer *last) {
    last->together_next = to->first;
    if (to->first)
        to->first->together_before = last;
    else
        to->last = last;
    to->first = first;
}

/* A list of so many goes to the front if its first buffer has waited longer. */
static void splice(struct gb_together *to, struct gb_buffer *first, struct gb_buffer *last, size_t count) {
    if (to->first && first->behind_ns < to->first->behind_ns)
        prepend(to, first, last);
    else
        append(to, first, last);
    to->count += count;
}

/* The smaller list is the one whose members are visited. */
static struct gb_together *merge(struct gb_together *a, struct gb_together *b) {
    struct gb_together *to = a->count < b->count ? b : a;
    struct gb_together *from = to == a ? b : a;
    struct gb_buffer *member;

    for (member = from->first; member; member = member->together_next)
        member->together = to;
    if (from->count > 0)
        splice(to, from->first, from->last, from->count);
    free(from);
    return to;
}

void gb_together_join(struct gb_together **at, struct gb_buffer *buffer) {
    if (buffer->together == *at)
        return;
    if (buffer->together) {
        *at = merge(*at, buffer->together);
        return;
    }
    buffer->together = *at;
    splice(*at, buffer, buffer, 1);
}

static void forget(struct gb_buffer *buffer) {
    buffer->together = NULL;
    buffer->together_next = buffer->together_before = NULL;
}

void gb_together_settle(struct gb_together *together) {
    if (!together || together->count > 1)
        return;
    if (together->first)
        forget(together->first);
    free(together);
}

void gb_together_leave(struct gb_buffer *buffer) {
    struct gb_together *together = buffer->together;

    if (!together)
        return;
    if (buffer->together_before)
        buffer->together_before->together_next = buffer->together_next;
    else
        together->first = buffer->together_next;
    if (buffer->together_next)
        buffer->together_next->together_before = buffer->together_before;
    else
        together->last = buffer->together_before;
    together->count--;
    forget(buffer);
    gb_together_settle(together);
}

bool gb_together_can_be_stored(const struct gb_buffer *buffer) {
    struct gb_error unused = GB_ERROR_INIT;

    return buffer->in_place || gb_guard_check_settled_locked(buffer, "", &unused) == 0;
}

struct gb_buffer *gb_together_leader(struct gb_buffer *buffer) {
    while (buffer->together && buffer->together->first != buffer && !gb_together_can_be_stored(buffer->together->first))
        gb_together_leave(buffer->together->first);
    return buffer->together ? buffer->together->first : buffer;
}
