/* The name that a mistyped word may have been meant for. Pure. */
#ifndef GB_BASE_NEAREST_H
#define GB_BASE_NEAREST_H

#define GB_NEAREST_MAX 40 /* longer words and names are near to nothing */

#include <stddef.h>

#define GB_NEAREST_HINT (GB_NEAREST_MAX + 20) /* bytes of a hint */

struct gb_nearest {
    const char *word; /* borrowed */
    int length;       /* of it */
    const char *name; /* the best so far, borrowed; NULL: none is near */
    int changes;      /* a name must need fewer */
};

/* word[0..length) need not end in NUL. */
void gb_nearest_begin(struct gb_nearest *nearest, const char *word, size_t length);

/* Takes the name if it is nearer than all before: if fewer letters come, go, change or swap places. */
void gb_nearest_try(struct gb_nearest *nearest, const char *name);

/* "; is --listen meant?" in text if a name is near, else "". before: "--" or "". Returns text. */
char *gb_nearest_hint(const struct gb_nearest *nearest, const char *before, char text[GB_NEAREST_HINT]);

#endif
