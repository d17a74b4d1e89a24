#include "daemon/token_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_writer.h"

/* The list while it is printed. */
struct list {
    struct gb_json_writer *out; /* NULL: a table */
    int64_t now_us;
    const char *same; /* what a token of the file has that one of the database has, too; NULL: it is in force */
};

/* Whole seconds are enough for people; "-" for a time that there is none of. */
static char *when(int64_t us, char out[GB_RFC3339_SIZE]) {
    char *dot;

    if (us == 0)
        return strcpy(out, "-");
    gb_rfc3339(us, out);
    dot = strchr(out, '.');
    if (dot)
        strcpy(dot, "Z");
    return out;
}

static const char *or_else(const char *text, const char *none) {
    return text[0] != '\0' ? text : none;
}

static const char *used_from(const struct gb_token_rec *rec) {
    return rec->used_at_us == 0 ? "-" : or_else(rec->used_from, "(socket)");
}

static bool over(const struct list *list, int64_t us) {
    return us > 0 && us <= list->now_us;
}

static void print_head(void) {
    printf("%-24s %-15s %-24s %-20s %-20s %-20s %-15s %s\n", "NAME", "SCOPE", "SESSION", "CREATED", "EXPIRES",
           "LAST USE", "FROM", "MORE");
}

/* What few tokens have. */
static void print_more(const struct list *list, const struct gb_token_rec *rec) {
    char time[GB_RFC3339_SIZE];

    if (over(list, rec->expires_at_us))
        printf(" expired");
    if (rec->prefix[0] != '\0')
        printf(" prefix=%s", rec->prefix);
    if (rec->subject[0] != '\0')
        printf(" subject=\"%s\"", rec->subject);
    if (rec->old_until_us > list->now_us)
        printf(" former-secret-until=%s", when(rec->old_until_us, time));
    if (rec->id < 0)
        printf(" file");
    if (list->same)
        printf(" not-in-force: the database has its %s", list->same);
}

static void print_row(const struct list *list, const struct gb_token_rec *rec) {
    char scopes[GB_SCOPES_SIZE];
    char created[GB_RFC3339_SIZE];
    char expires[GB_RFC3339_SIZE];
    char used[GB_RFC3339_SIZE];

    printf("%-24s %-15s %-24s %-20s %-20s %-20s %-15s", rec->name.s, gb_scopes_text(rec->scopes, scopes),
           or_else(rec->session, "(all)"), when(rec->created_at_us, created), when(rec->expires_at_us, expires),
           when(rec->used_at_us, used), used_from(rec));
    print_more(list, rec);
    putchar('\n');
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void put_text(struct gb_json_writer *out, const char *key, const char *text) {
    if (text[0] != '\0')
        gb_json_put_string(out, key, text);
    else
        gb_json_put_null(out, key);
}

static void put_time(struct gb_json_writer *out, const char *key, int64_t us) {
    if (us > 0)
        gb_json_put_time(out, key, us);
    else
        gb_json_put_null(out, key);
}

static void put_scopes(struct gb_json_writer *out, unsigned scopes) {
    int i;

    gb_json_open(out, "scopes", '[');
    for (i = 0; i < GB_SCOPE_COUNT; i++) {
        if (scopes & 1u << i)
            gb_json_put_string(out, NULL, gb_scope_name((enum gb_scope)i));
    }
    gb_json_close(out, ']');
}

static void put_token(const struct list *list, const struct gb_token_rec *rec) {
    struct gb_json_writer *out = list->out;

    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "name", rec->name.s);
    gb_json_put_string(out, "source", rec->id < 0 ? "file" : "database");
    put_scopes(out, rec->scopes);
    put_text(out, "session", rec->session);
    put_text(out, "prefix", rec->prefix);
    put_text(out, "subject", rec->subject);
    put_time(out, "created_at", rec->created_at_us);
    put_time(out, "expires_at", rec->expires_at_us);
    gb_json_put_bool(out, "expired", over(list, rec->expires_at_us));
    gb_json_put_bool(out, "in_force", !over(list, rec->expires_at_us) && !list->same);
    put_time(out, "former_secret_until", rec->old_until_us > list->now_us ? rec->old_until_us : 0);
    put_time(out, "last_used_at", rec->used_at_us);
    put_text(out, "last_used_from", rec->used_at_us > 0 ? or_else(rec->used_from, "(socket)") : "");
    gb_json_close(out, '}');
}

/* --- both --------------------------------------------------------------------------------------------------------- */

static void visit(const struct list *list, const struct gb_token_rec *rec) {
    if (list->out)
        put_token(list, rec);
    else
        print_row(list, rec);
}

static int collect(void *arg, const struct gb_token_rec *rec, struct gb_error *err) {
    return gb_token_array_add(arg, rec, err);
}

static int visit_file(struct gb_token_store *tokens, const struct gb_tokens_file *file,
                      const struct gb_tokens_index *database, struct list *list, struct gb_error *err) {
    size_t i;

    for (i = 0; i < file->count; i++) {
        struct gb_token_rec rec = file->recs[i];

        list->same = NULL;
        if (gb_token_last_use(tokens, &rec, err) != 0)
            return -1;
        gb_tokens_index_find(database, &rec, &list->same);
        visit(list, &rec);
    }
    list->same = NULL;
    return 0;
}

static int visit_all(struct gb_token_store *tokens, const struct gb_tokens_file *file, struct list *list,
                     struct gb_error *err) {
    struct gb_token_array array = {.items = NULL};
    struct gb_tokens_index database = {.names = {NULL}};
    size_t i;
    int r = gb_token_list(tokens, collect, &array, err);

    if (r == 0)
        r = gb_tokens_index_add_all(&database, &array, err);
    if (r == 0)
        r = visit_file(tokens, file, &database, list, err);
    for (i = 0; r == 0 && i < array.count; i++)
        visit(list, &array.items[i]);
    gb_tokens_index_done(&database);
    free(array.items);
    return r;
}

static int print_json(struct gb_token_store *tokens, const struct gb_tokens_file *file, struct gb_error *err) {
    struct gb_json_writer out = {0};
    struct list list = {.out = &out, .now_us = gb_wall_us()};
    int r;

    gb_json_open(&out, NULL, '{');
    gb_json_open(&out, "tokens", '[');
    r = visit_all(tokens, file, &list, err);
    gb_json_close(&out, ']');
    gb_json_close(&out, '}');
    gb_json_end(&out);
    if (r == 0 && out.failed)
        r = gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    if (r == 0)
        fwrite(out.s, 1, out.used, stdout);
    gb_json_done(&out);
    return r;
}

int gb_token_list_print(struct gb_token_store *tokens, const struct gb_tokens_file *file, bool json,
                        struct gb_error *err) {
    struct list list = {.now_us = gb_wall_us()};

    if (json)
        return print_json(tokens, file, err);
    print_head();
    return visit_all(tokens, file, &list, err);
}
