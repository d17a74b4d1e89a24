/* Cursors of lists that are filtered or sorted: where a page ended, and of which selection it was. */
#ifndef GB_API_LIST_CURSOR_H
#define GB_API_LIST_CURSOR_H

#include <stdint.h>

#include "api/list/selection.h"

/* A place in a list: after the item with this id, or in a sorted list after this value and name. */
struct gb_list_place {
    uint64_t number; /* an id, or the value of the field; 0 when the field is the name */
    struct gb_name name;
};

#define GB_LIST_CURSOR_SIZE (20 + 1 + 8 + 1 + GB_NAME_MAX + 1)

/* Writes the cursor: "ID", as everywhere, of a list by age with all items; else "NUMBER.DIGEST", and ".NAME" after it
 * if the list is sorted. The first two fit into 31 characters, for which clients in C have room. Returns out. */
char *gb_list_cursor_text(const struct gb_selection *selection, const struct gb_list_place *place,
                          char out[GB_LIST_CURSOR_SIZE]);

/* Returns 0, or -1 with INVALID_ARGUMENT; a cursor of another selection is refused with a text of its own. */
int gb_list_cursor_parse(const struct gb_selection *selection, const char *text, size_t len, struct gb_list_place *ret,
                         struct gb_error *err);

#endif
