#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"

struct token_array {
    struct gb_token_rec *items;
    size_t count;
};

static int collect(void *arg, const struct gb_token_rec *rec, struct gb_error *err) {
    struct token_array *array = arg;
    struct gb_token_rec *items = realloc(array->items, (array->count + 1) * sizeof *items);

    if (items == NULL)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory while reading tokens");
    array->items = items;
    items[array->count++] = *rec;
    return 0;
}

/* A token that no secret opens: no text is known whose SHA-256 is all zeros. With it in force every request needs a
 * token, and none passes. */
static struct gb_token_rec locked_token(void) {
    struct gb_token_rec rec = {.name = {"none"}, .scopes = 1u << GB_SCOPE_READ};

    memset(rec.sha256_hex, '0', sizeof rec.sha256_hex - 1);
    return rec;
}

int gb_daemon_load_tokens(struct gb_daemon *daemon, size_t *ret_count, struct gb_error *err) {
    struct gb_token_rec locked = locked_token();
    struct token_array array = {0};
    int rc = gb_token_list(daemon->tokens, collect, &array, err);

    if (rc == 0 && daemon->core != NULL) {
        if (array.count == 0 && daemon->exposed)
            rc = gb_tokens_set(daemon->core, &locked, 1, err);
        else
            rc = gb_tokens_set(daemon->core, array.items, array.count, err);
    }
    if (rc == 0)
        *ret_count = array.count;
    free(array.items);
    return rc;
}
