/* The name that a mistyped word may have been meant for. Pure. */
#ifndef GB_BASE_NEAREST_H
#define GB_BASE_NEAREST_H

#define GB_NEAREST_MAX 40 /* longer words and names are near to nothing */

struct gb_nearest {
    const char *word; /* borrowed */
    const char *name; /* the best so far, borrowed; NULL: none is near */
    int changes;      /* a name must need fewer */
};

void gb_nearest_begin(struct gb_nearest *nearest, const char *word);

/* Takes the name if it is nearer than all before: if fewer letters come, go, change or swap places. */
void gb_nearest_try(struct gb_nearest *nearest, const char *name);

#endif
