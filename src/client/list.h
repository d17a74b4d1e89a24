/* Lists, page after page. */
#ifndef GBC_LIST_H
#define GBC_LIST_H

#include <stdlib.h>
#include <string.h>

#include "client/client.h"

/* What gpubuf_<noun>_list holds, whatever the noun. */
struct gbc_list {
    void *items;
    size_t count;
    char *json;
    char next_cursor[32];
};

/* Asks for the page, or with NULL for all, ends the request, and makes records of `size` bytes. */
int gbc_list(gpubuf_client *client, struct gbc_request *request, const struct gpubuf_page *page, gbc_record_fn *record,
             size_t size, struct gbc_list *ret, struct gpubuf_error *err);

/* ret is written on success only; NULL: the list is asked for and checked. */
#define GBC_LIST(client, request, page, record, ret, err)                                                              \
    ({                                                                                                                 \
        struct gbc_list gbc_found;                                                                                     \
        int gbc_r = gbc_list(client, request, page, record, sizeof(*(ret)->items), &gbc_found, err);                   \
                                                                                                                       \
        if (gbc_r == 0 && (ret)) {                                                                                     \
            (ret)->items = gbc_found.items;                                                                            \
            (ret)->count = gbc_found.count;                                                                            \
            (ret)->json = gbc_found.json;                                                                              \
            memcpy((ret)->next_cursor, gbc_found.next_cursor, sizeof((ret)->next_cursor));                             \
        } else if (gbc_r == 0) {                                                                                       \
            free(gbc_found.items);                                                                                     \
            free(gbc_found.json);                                                                                      \
        }                                                                                                              \
        gbc_r;                                                                                                         \
    })

#define GBC_LIST_DONE(noun)                                                                                            \
    void gpubuf_##noun##_list_done(struct gpubuf_##noun##_list *list) {                                                \
        if (!list)                                                                                                     \
            return;                                                                                                    \
        free(list->items);                                                                                             \
        free(list->json);                                                                                              \
        memset(list, 0, sizeof(*list));                                                                                \
    }

#endif
