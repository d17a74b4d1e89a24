/* Short texts that live as long as one request: its target, header fields and query. */
#ifndef GB_HTTP_MESSAGE_TEXT_ARENA_H
#define GB_HTTP_MESSAGE_TEXT_ARENA_H

#include <stddef.h>

/* Bytes of text that most requests do with. */
#define GB_TEXT_ARENA_SMALL 1024

struct gb_text_arena {
    char *at; /* the block in use: small, then more */
    size_t size;
    size_t used;
    size_t more_size;
    char *more; /* allocated when small is full */
    char small[GB_TEXT_ARENA_SMALL];
};

/* Makes the arena empty. more_size: bytes of the second block, the last that the arena allocates. small is not
 * written. */
void gb_text_arena_init(struct gb_text_arena *arena, size_t more_size);
/* Frees all texts. A zeroed arena is accepted. */
void gb_text_arena_done(struct gb_text_arena *arena);

/* Copies s[0..n) and ends the copy with NUL. The copy lives as long as the arena. Returns NULL if memory is exhausted
 * or the arena is full. */
char *gb_text_arena_copy(struct gb_text_arena *arena, const char *s, size_t n);

#endif
