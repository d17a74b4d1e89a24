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

int gb_daemon_read_tokens_file(struct gb_daemon *daemon, bool asked, bool *ret_changed, struct gb_error *err) {
    const char *path = daemon->options.tokens_file;

    *ret_changed = false;
    if (path[0] == '\0' || (!gb_tokens_file_changed(&daemon->tokens_file, path) && !asked))
        return 0;
    if (gb_tokens_file_read(&daemon->tokens_file, path, err) != 0)
        return -1;
    *ret_changed = true;
    return 0;
}

/* What the last process knew of the uses of the file's tokens stands in the database. */
static int add_file(struct gb_daemon *daemon, struct token_array *array, struct gb_error *err) {
    size_t i;

    for (i = 0; i < daemon->tokens_file.count; i++) {
        struct gb_token_rec rec = daemon->tokens_file.recs[i];

        if (gb_token_last_use(daemon->tokens, &rec, err) != 0 || collect(array, &rec, err) != 0)
            return -1;
    }
    return 0;
}

bool gb_daemon_is_closed(const struct gb_daemon *daemon) {
    return daemon->exposed || daemon->options.tokens_file[0] != '\0' || (daemon->proxied && daemon->had_tokens);
}

int gb_daemon_load_tokens(struct gb_daemon *daemon, size_t *ret_count, struct gb_error *err) {
    struct gb_token_rec locked = locked_token();
    struct token_array array = {0};
    int rc = gb_token_list(daemon->tokens, collect, &array, err);

    if (rc == 0)
        rc = add_file(daemon, &array, err);
    if (array.count > 0)
        daemon->had_tokens = true;
    if (rc == 0 && daemon->core != NULL) {
        if (array.count == 0 && gb_daemon_is_closed(daemon))
            rc = gb_tokens_set(daemon->core, &locked, 1, err);
        else
            rc = gb_tokens_set(daemon->core, array.items, array.count, err);
    }
    if (rc == 0 && daemon->core != NULL)
        daemon->token_end_us = gb_tokens_next_end(daemon->core);
    if (rc == 0)
        *ret_count = array.count;
    free(array.items);
    return rc;
}
