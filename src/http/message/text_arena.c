#include "http/message/text_arena.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void gb_text_arena_init(struct gb_text_arena *arena, size_t more_size) {
    arena->at = arena->small;
    arena->size = sizeof(arena->small);
    arena->used = 0;
    arena->more_size = more_size;
    arena->more = NULL;
}

void gb_text_arena_done(struct gb_text_arena *arena) {
    free(arena->more);
    arena->more = NULL;
}

/* Texts in small stay there. */
static bool grow(struct gb_text_arena *arena) {
    if (arena->more)
        return false;
    arena->more = malloc(arena->more_size);
    if (!arena->more)
        return false;
    arena->at = arena->more;
    arena->size = arena->more_size;
    arena->used = 0;
    return true;
}

char *gb_text_arena_copy(struct gb_text_arena *arena, const char *s, size_t n) {
    char *copy;

    if (n + 1 > arena->size - arena->used && (!grow(arena) || n + 1 > arena->size))
        return NULL;
    copy = arena->at + arena->used;
    memcpy(copy, s, n);
    copy[n] = '\0';
    arena->used += n + 1;
    return copy;
}
