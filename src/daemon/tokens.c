/* Tokens are put in force: those of the database and of the file come together here, and what one held ends when it is
 * gone or its time has passed. Only the main thread loads them. */
#include "daemon/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/daemon.h"
#include "model/token.h"

static int collect(void *arg, const struct gb_token_rec *rec, struct gb_error *err) {
    return gb_token_array_add(arg, rec, err);
}

/* A token that no secret opens: no text is known whose SHA-256 is all zeros. With it in force every request needs a
 * token, and none passes. */
static struct gb_token_rec locked_token(void) {
    struct gb_token_rec rec = {.name = {"none"}, .scopes = 1u << GB_SCOPE_READ};

    memset(rec.sha256_hex, '0', sizeof(rec.sha256_hex) - 1);
    return rec;
}

static bool same_rights(const struct gb_token_rec *a, const struct gb_token_rec *b) {
    return strcmp(a->sha256_hex, b->sha256_hex) == 0 && a->scopes == b->scopes && strcmp(a->session, b->session) == 0 &&
           strcmp(a->prefix, b->prefix) == 0 && strcmp(a->subject, b->subject) == 0 &&
           a->expires_at_us == b->expires_at_us;
}

/* The daemon itself changes them: who wrote the file is not known. */
static void note(struct gb_core *core, enum gb_audit_event event, const struct gb_token_rec *token) {
    const struct gb_audit_rec rec = {.at_us = gb_wall_us(),
                                     .event = event,
                                     .text = {[GB_AUDIT_ADDRESS] = "daemon",
                                              [GB_AUDIT_SESSION] = token->session[0] ? token->session : NULL,
                                              [GB_AUDIT_OBJECT] = token->name.s}};

    gb_audit_note(core, &rec);
}

static void note_changes(struct gb_core *core, const struct gb_tokens_file *before, const struct gb_tokens_file *now) {
    size_t i;

    for (i = 0; i < before->count; i++) {
        if (!gb_tokens_index_named(&now->index, before->recs[i].name.s))
            note(core, GB_AUDIT_TOKEN_REVOKED, &before->recs[i]);
    }
    for (i = 0; i < now->count; i++) {
        const struct gb_token_rec *old = gb_tokens_index_named(&before->index, now->recs[i].name.s);

        if (!old)
            note(core, GB_AUDIT_TOKEN_ADDED, &now->recs[i]);
        else if (!same_rights(old, &now->recs[i]))
            note(core, GB_AUDIT_TOKEN_CHANGED, &now->recs[i]);
    }
}

int gb_daemon_read_tokens_file(struct gb_daemon *daemon, bool asked, bool *ret_changed, struct gb_error *err) {
    const char *path = daemon->options.tokens_file;
    struct gb_tokens_file *file = &daemon->tokens_file;
    struct gb_tokens_file fresh = {.recs = NULL};
    int r;

    *ret_changed = false;
    if (path[0] == '\0' || (!gb_tokens_file_changed(file, path, gb_clock_ns()) && !asked))
        return 0;
    r = gb_tokens_file_read(&fresh, path, err);
    file->opened = fresh.opened;
    if (r != 0)
        return -1;
    fresh.seen = file->seen;
    fresh.seen_ns = file->seen_ns;
    if (daemon->core && gb_audit_mode(daemon->core) != GB_AUDIT_OFF)
        note_changes(daemon->core, file, &fresh);
    gb_tokens_file_done(file);
    *file = fresh;
    *ret_changed = true;
    return 0;
}

/* --- those of the file beside those of the database --------------------------------------------------------------- */

static void log_clash(const struct gb_daemon *daemon, size_t i, const struct gb_token_rec *other, const char *same) {
    gb_log(&daemon->log, GB_LOG_ERROR, "tokens",
           "%s:%u: token \"%s\" is not in force: token \"%s\" of the database has the same %s, and the database wins; "
           "remove that line, or revoke the other",
           daemon->options.tokens_file, daemon->tokens_file.lines[i], daemon->tokens_file.recs[i].name.s, other->name.s,
           same);
}

/* What the last process knew of the uses of the file's tokens stands in the database. A token that would take a name, a
 * secret or a certificate from one of the database stays out. */
static int add_apart(struct gb_daemon *daemon, const struct gb_tokens_index *database, struct gb_token_array *array,
                     struct gb_error *err) {
    size_t i;

    for (i = 0; i < daemon->tokens_file.count; i++) {
        struct gb_token_rec rec = daemon->tokens_file.recs[i];
        const char *same;
        const struct gb_token_rec *other = gb_tokens_index_find(database, &rec, &same);

        if (other && daemon->core)
            log_clash(daemon, i, other, same);
        if (other)
            continue;
        if (gb_token_last_use(daemon->tokens, &rec, err) != 0 || gb_token_array_add(array, &rec, err) != 0)
            return -1;
    }
    return 0;
}

/* array: those of the database. */
static int add_file(struct gb_daemon *daemon, struct gb_token_array *array, struct gb_error *err) {
    struct gb_tokens_index database = {.names = {NULL}};
    int r = gb_token_array_reserve(array, array->count + daemon->tokens_file.count, err);

    if (r == 0)
        r = gb_tokens_index_add_all(&database, array, err);
    if (r == 0)
        r = add_apart(daemon, &database, array, err);
    gb_tokens_index_done(&database);
    return r;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

static void count_tokens(const struct gb_token_array *array, struct gb_token_count *ret) {
    int64_t now_us = gb_wall_us();
    size_t at = 0;
    size_t i;

    *ret = (struct gb_token_count){.all = array->count};
    for (i = 0; i < array->count; i++) {
        const struct gb_token_rec *rec = &array->items[i];

        if (rec->expires_at_us == 0 || rec->expires_at_us > now_us)
            ret->in_force++;
        else if (at < sizeof(ret->expired))
            at +=
                (size_t)snprintf(ret->expired + at, sizeof(ret->expired) - at, "%s%s", at > 0 ? ", " : "", rec->name.s);
    }
    if (at >= sizeof(ret->expired))
        strcpy(ret->expired + sizeof(ret->expired) - 4, "...");
}

bool gb_daemon_is_closed(const struct gb_daemon *daemon) {
    return daemon->exposed || daemon->options.tokens_file[0] != '\0' || (daemon->proxied && daemon->had_tokens);
}

/* Those that recheck their callers ask once, and the clock of another thread may be a little behind. */
#define CLOCKS_US 1000

/* After the tokens, or the clock, were set: notes when what the next token holds is to end, seen from now_us
 * (gb_tokens_now_us). */
static void note_end(struct gb_daemon *daemon, int64_t now_us) {
    int64_t end_us = gb_tokens_next_end(daemon->core, now_us - CLOCKS_US);

    daemon->token_look_us = now_us;
    daemon->token_end_us = end_us > 0 ? end_us + CLOCKS_US : 0;
}

int gb_daemon_load_tokens(struct gb_daemon *daemon, struct gb_token_count *ret, struct gb_error *err) {
    struct gb_token_rec locked = locked_token();
    struct gb_token_array array = {0};
    int r = gb_token_list(daemon->tokens, collect, &array, err);

    if (r == 0)
        r = add_file(daemon, &array, err);
    if (array.count > 0)
        daemon->had_tokens = true;
    if (r == 0 && daemon->core) {
        if (array.count == 0 && gb_daemon_is_closed(daemon))
            r = gb_tokens_set(daemon->core, &locked, 1, err);
        else
            r = gb_tokens_set(daemon->core, array.items, array.count, err);
    }
    if (r == 0 && daemon->core)
        note_end(daemon, gb_tokens_now_us(daemon->core));
    if (r == 0)
        count_tokens(&array, ret);
    free(array.items);
    return r;
}

void gb_daemon_log_tokens(const struct gb_daemon *daemon, const struct gb_token_count *count) {
    bool closed = count->all > 0 || gb_daemon_is_closed(daemon);

    gb_log(&daemon->log, count->in_force > 0 ? GB_LOG_INFO : GB_LOG_WARNING, "tokens", "%zu in force%s%s%s",
           count->in_force, count->expired[0] != '\0' ? "; expired: " : "", count->expired,
           count->in_force > 0 ? ""
           : closed            ? ": every request that needs one is refused"
                               : ": no request needs one any more");
}

/* --- while the daemon serves -------------------------------------------------------------------------------------- */

/* What tokens hold that are no longer in force ends. */
static void end_revoked(struct gb_daemon *daemon) {
    gb_http_server_recheck(daemon->server);
    gb_api_tokens_changed(daemon->api);
}

static void check_token_end(struct gb_daemon *daemon) {
    int64_t now_us = gb_tokens_now_us(daemon->core);
    struct gb_token_count count;

    /* The clock was set ahead and back again: what was over is to come. */
    if (now_us < daemon->token_look_us)
        note_end(daemon, now_us);
    else
        daemon->token_look_us = now_us;
    if (daemon->token_end_us == 0 || now_us < daemon->token_end_us)
        return;
    gb_log(&daemon->log, GB_LOG_INFO, "tokens", "the time of a token, or of its former secret, is over");
    if (gb_daemon_load_tokens(daemon, &count, NULL) == 0)
        gb_daemon_log_tokens(daemon, &count);
    note_end(daemon, now_us);
    end_revoked(daemon);
}

void gb_daemon_reload_tokens(struct gb_daemon *daemon, bool asked) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_error file_err = GB_ERROR_INIT;
    bool changed = false;
    bool file_changed = false;
    struct gb_token_count count;

    if (gb_daemon_read_tokens_file(daemon, asked, &file_changed, &file_err) != 0)
        gb_log(&daemon->log, GB_LOG_ERROR, "tokens", "%s; the file's tokens that are known stay in force",
               file_err.detail);
    daemon->tokens_due = daemon->tokens_due || file_changed || asked;
    if (gb_token_changed(daemon->tokens, &changed, &err) == 0) {
        daemon->tokens_due = daemon->tokens_due || changed;
        if (daemon->tokens_due && gb_daemon_load_tokens(daemon, &count, &err) == 0) {
            daemon->tokens_due = false;
            gb_daemon_log_tokens(daemon, &count);
            end_revoked(daemon);
        }
    }
    if (err.code != GB_OK && (!daemon->tokens_failed || asked))
        gb_log(&daemon->log, GB_LOG_ERROR, "tokens", "cannot be read, those known stay in force: %s", err.detail);
    daemon->tokens_failed = err.code != GB_OK;
    check_token_end(daemon);
}

/* Until the next check, or until a token expires. */
int gb_daemon_token_patience_ms(const struct gb_daemon *daemon, int tick_ms) {
    int64_t left_us = daemon->token_end_us > 0 ? daemon->token_end_us - gb_tokens_now_us(daemon->core) : INT64_MAX;

    if (left_us <= 0)
        return 0;
    return left_us / 1000 < tick_ms ? (int)(left_us / 1000) + 1 : tick_ms;
}
