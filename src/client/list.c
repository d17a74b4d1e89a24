#include "client/list.h"

#include <stdio.h>

#define PAGE_ITEMS 1000

/* Pages that are gathered. */
struct gathering {
    struct gbc_list list;
    gbc_record_fn *record;
    size_t size;
    json_t *all;
    bool paged; /* another page may follow */
};

static int take_page(const json_t *object, void *arg) {
    const json_t *items = json_object_get(object, "items");
    struct gathering *g = arg;
    size_t more = json_array_size(items);
    char *grown;
    size_t i;

    if (!json_is_array(items) || (g->paged && !json_object_get(object, "next_cursor")))
        return -1;
    gbc_read_text(object, "next_cursor", g->list.next_cursor, sizeof(g->list.next_cursor));
    grown = realloc(g->list.items, (g->list.count + more + 1) * g->size);
    if (!grown)
        return -1;
    g->list.items = grown;
    for (i = 0; i < more; i++) {
        json_t *item = json_array_get(items, i);

        if (g->record(item, grown + g->list.count * g->size) < 0 || json_array_append(g->all, item) < 0)
            return -1;
        g->list.count++;
    }
    return 0;
}

static int ask_page(gpubuf_client *client, const struct gbc_request *base, const char *cursor, uint64_t limit,
                    struct gathering *g, struct gpubuf_error *err) {
    struct gbc_request request = *base;

    request.target = (struct gbc_text){.data = NULL};
    gbc_text_add(&request.target, base->target.data ? base->target.data : "", base->target.bytes);
    gbc_query(&request, "cursor", cursor);
    if (limit > 0)
        gbc_query_u64(&request, "limit", limit);
    if (gbc_ask(client, &request, err) < 0) {
        gbc_text_done(&request.target);
        return -1;
    }
    gbc_text_done(&request.target);
    return gbc_parse(&gbc_reply_of(client->conn)->body, take_page, g, err);
}

static int gather(gpubuf_client *client, const struct gbc_request *request, const struct gpubuf_page *page,
                  struct gathering *g, struct gpubuf_error *err) {
    char cursor[sizeof(g->list.next_cursor)] = "";

    if (page)
        return ask_page(client, request, page->cursor, page->limit, g, err);
    do {
        gbc_copy(cursor, sizeof(cursor), g->list.next_cursor);
        if (ask_page(client, request, cursor[0] != '\0' ? cursor : NULL, PAGE_ITEMS, g, err) < 0)
            return -1;
        if (cursor[0] != '\0' && strcmp(cursor, g->list.next_cursor) == 0)
            return gbc_error_set(err, GPUBUF_BAD_ANSWER, "the list does not end: cursor %s leads to itself", cursor);
    } while (g->list.next_cursor[0] != '\0');
    return 0;
}

int gbc_list(gpubuf_client *client, struct gbc_request *request, const struct gpubuf_page *page, gbc_record_fn *record,
             size_t size, struct gbc_list *ret, struct gpubuf_error *err) {
    struct gathering g = {.record = record, .size = size, .all = json_array(), .paged = !page || page->limit > 0};
    int r = gather(client, request, page, &g, err);

    gbc_request_done(request);
    if (r == 0) {
        g.list.json = json_dumps(g.all, JSON_COMPACT | JSON_PRESERVE_ORDER);
        if (!g.list.json)
            r = gbc_error_memory(err);
    }
    json_decref(g.all);
    if (r < 0)
        free(g.list.items);
    else
        *ret = g.list;
    return r;
}
