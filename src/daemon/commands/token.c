/* `gpubufd token`: adds, lists, rotates and revokes tokens in the database, also while a daemon runs, which sees it
 * within a second. A secret is shown once, and no text of an error has one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/hash.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "daemon/cage/privileges.h"
#include "daemon/checks.h"
#include "daemon/commands/command.h"
#include "daemon/state_dir.h"
#include "daemon/tokens_file.h"
#include "model/token.h"

/* --- the list ----------------------------------------------------------------------------------------------------- */

/* The list while it is printed. */
struct list {
    struct gb_json_writer *out; /* NULL: a table */
    int64_t now_us;
    const char *same; /* what a token of the file has that one of the database has, too; NULL: it is in force */
};

/* Whole seconds are enough for people; "-" for a time that is not set. */
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

static int print_list(struct gb_token_store *tokens, const struct gb_tokens_file *file, bool json,
                      struct gb_error *err) {
    struct list list = {.now_us = gb_wall_us()};

    if (json)
        return print_json(tokens, file, err);
    print_head();
    return visit_all(tokens, file, &list, err);
}

/* --- the audit ---------------------------------------------------------------------------------------------------- */

/* Records a change of a token. A failure is said, and changes nothing. */
static void note_audit(const struct gb_options *options, struct gb_token_store *tokens, enum gb_audit_event event,
                       const char *name, const char *session) {
    char address[32];
    const struct gb_audit_rec rec = {.at_us = gb_wall_us(),
                                     .event = event,
                                     .text = {[GB_AUDIT_ADDRESS] = address,
                                              [GB_AUDIT_SESSION] = session && session[0] ? session : NULL,
                                              [GB_AUDIT_OBJECT] = name}};
    struct gb_error err = GB_ERROR_INIT;
    char *state_dir;

    if (gb_daemon_audit_mode(options) == GB_AUDIT_OFF)
        return;
    snprintf(address, sizeof(address), "unix:%u", (unsigned)getuid());
    if (gb_token_audit(tokens, &rec, &err) < 0)
        fprintf(stderr, "gpubufd: the audit does not have this: %s\n", err.detail);
    err = GB_ERROR_INIT;
    if (options->audit_file[0] == '\0')
        return;
    state_dir = gb_state_dir_find(options->state_dir, &err);
    if (!state_dir || gb_audit_append(options->audit_file, state_dir, &rec, &err) < 0)
        fprintf(stderr, "gpubufd: %s does not have this: %s\n", options->audit_file, err.detail);
    free(state_dir);
}

/* --- words -------------------------------------------------------------------------------------------------------- */

#define SECRET_BYTES 32
#define SECRET_SIZE 1024 /* of one that is given, with its newline and NUL */

enum verb { ADD, LIST, REVOKE, ROTATE, VERBS };
enum own { SCOPE, SESSION, PREFIX, EXPIRES, SUBJECT, OVERLAP, SECRET_FILE, JSON, OWNS };

static const size_t words[VERBS] = {[ADD] = 2, [LIST] = 1, [REVOKE] = 2, [ROTATE] = 2}; /* with the verb */

static const struct gb_command_verb helps[VERBS] = {
    [ADD] = {"add NAME [OPTION...]",
             "Makes a token and prints its secret, once. A running daemon knows it within a second"},
    [LIST] = {"list [--json] [OPTION...]", "Prints the tokens with their scopes, times and last uses"},
    [REVOKE] = {"revoke NAME [OPTION...]", "Removes a token. What it holds ends within a second"},
    [ROTATE] = {"rotate NAME [--overlap DURATION] [OPTION...]", "Gives a token another secret and prints it, once"},
};

static const struct gb_command_option owns[OWNS] = {
    [SCOPE] = {"--scope", "WORD[,...]",
               "verify, read (the default), write, map, map-write, admin, fleet, or several between commas", 1u << ADD},
    [SESSION] = {"--session", "SESSION", "the name of a session: the token is good there only", 1u << ADD},
    [PREFIX] = {"--prefix", "PREFIX", "what the names of its buffers begin with: it is good for these only", 1u << ADD},
    [EXPIRES] = {"--expires", "WHEN", "how long, as 90s, 15m, 12h, 30d or 2w, or a time such as 2030-01-02T03:04:05Z",
                 1u << ADD},
    [SUBJECT] =
        {"--subject", "TEXT",
         "a client's certificate that is as good as the secret: its subject as \"gpubufd tls show\" prints it, such as "
         "CN=ci, or a name of it such as dns:HOST, uri:URI, email:ADDRESS or ip:ADDRESS",
         1u << ADD},
    [OVERLAP] = {"--overlap", "DURATION", "how long the former secret is good, such as 30m (default 1h); 0: no longer",
                 1u << ROTATE},
    [SECRET_FILE] = {"--secret-file", "FILE",
                     "file whose first line is the secret, - for standard input; without it one is made and printed",
                     1u << ADD | 1u << ROTATE},
    [JSON] = {"--json", "", "one JSON object", 1u << LIST},
};

static const enum gb_option_id of_daemon[] = {GB_OPTION_ID_state_dir, GB_OPTION_ID_tokens_file, GB_OPTION_ID_config};

static const struct gb_command about = {.word = "token",
                                        .verbs = helps,
                                        .verb_count = VERBS,
                                        .options = owns,
                                        .option_count = OWNS,
                                        .of_daemon = of_daemon,
                                        .of_daemon_count = sizeof(of_daemon) / sizeof(of_daemon[0])};

#define USAGE "token: permitted: add NAME, list, rotate NAME, revoke NAME"

struct command {
    struct gb_command_line line;
    enum verb verb;
};

static int make_secret(char *out, struct gb_error *err) {
    unsigned char bytes[SECRET_BYTES];

    if (gb_random(bytes, sizeof(bytes), err) != 0)
        return -1;
    gb_hex(bytes, sizeof(bytes), stpcpy(out, "gpb_"));
    explicit_bzero(bytes, sizeof(bytes));
    return 0;
}

/* The first line. */
static int read_secret(const char *path, char secret[SECRET_SIZE], struct gb_error *err) {
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "re");
    size_t n;

    if (!file)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--secret-file %.128s cannot be read: %s", path,
                            strerror(errno));
    setvbuf(file, NULL, _IONBF, 0); /* no copy of it stays in memory */
    if (!fgets(secret, SECRET_SIZE, file))
        secret[0] = '\0';
    if (!standard)
        fclose(file);
    n = strcspn(secret, "\r\n");
    if (secret[n] == '\0' && n + 1 == SECRET_SIZE)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--secret-file: a secret has at most %d bytes",
                            SECRET_SIZE - 2);
    secret[n] = '\0';
    if (gb_conf_mark(secret))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--secret-file %.128s %s", path, gb_conf_mark(secret));
    return gb_token_secret_check(secret, err);
}

/* path: NULL: it is made. */
static int new_secret(const char *path, char secret[SECRET_SIZE], char *ret_hash, struct gb_error *err) {
    if (path ? read_secret(path, secret, err) : make_secret(secret, err))
        return -1;
    return gb_sha256_hex(secret, strlen(secret), ret_hash, err);
}

/* "30d". A number without a unit might mean seconds or days. */
static int read_duration(const char *text, uint64_t *ret_s) {
    size_t n = strlen(text);

    return n > 0 && strchr("smhdw", text[n - 1]) ? gb_duration_parse(text, n, ret_s) : -1;
}

/* "30d" from now, or a time. */
static int read_expiry(const char *text, int64_t *ret_us, struct gb_error *err) {
    int64_t now_us = gb_wall_us();
    uint64_t seconds;

    if (!text)
        return 0;
    if (read_duration(text, &seconds) == 0)
        *ret_us = now_us + (int64_t)seconds * 1000000;
    else if (text[0] != '\0' && strspn(text, "0123456789") == strlen(text))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "--expires %.20s has no unit: write %.20sd for days; the units are s, m, h, d and w", text,
                            text);
    else if (gb_timestamp_parse(text, strlen(text), ret_us) != GB_TIMESTAMP_OK)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--expires needs %s, not \"%.64s\"", owns[EXPIRES].help,
                            text);
    if (*ret_us <= now_us)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--expires %.64s is not in the future", text);
    return 0;
}

static int read_token(const struct command *command, struct gb_token_rec *rec, struct gb_error *err) {
    const char *scope = command->line.own[SCOPE];
    const char *subject = command->line.own[SUBJECT];

    if (gb_name_parse("token name", command->line.words[1], strlen(command->line.words[1]), &rec->name, err) != 0)
        return -1;
    if (scope && gb_scopes_parse(scope, strlen(scope), &rec->scopes, err) != 0)
        return -1;
    if (subject && gb_subject_parse(subject, strlen(subject), rec->subject, err) != 0)
        return -1;
    if (gb_token_read_name("session name", command->line.own[SESSION], rec->session, err) != 0 ||
        gb_token_read_name("prefix", command->line.own[PREFIX], rec->prefix, err) != 0)
        return -1;
    return read_expiry(command->line.own[EXPIRES], &rec->expires_at_us, err);
}

static void say_word(const char *what, const char *value) {
    if (value[0] != '\0')
        fprintf(stderr, ", %s %s", what, value);
}

/* --- the file beside the database --------------------------------------------------------------------------------- */

/* What the database takes, the file has not: else the file's would be out of force. */
static int check_file(const struct gb_options *options, const struct gb_token_rec *rec, struct gb_error *err) {
    struct gb_tokens_file file = {.recs = NULL};
    const struct gb_token_rec *had;
    const char *same;
    int r = 0;

    if (options->tokens_file[0] == '\0')
        return 0;
    r = gb_tokens_file_read(&file, options->tokens_file, err);
    had = r == 0 ? gb_tokens_index_find(&file.index, rec, &same) : NULL;
    if (had)
        r = gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.160s:%u has a token of the same %s: remove that line first%s",
                         options->tokens_file, gb_tokens_file_line(&file, had), same,
                         strcmp(had->name.s, rec->name.s) == 0 ? ", or choose another name" : "");
    gb_tokens_file_done(&file);
    return r;
}

/* The line of the file that has a token of that name; 0: none. A file that cannot be read is said. */
static unsigned line_of(const struct gb_options *options, const char *name) {
    struct gb_tokens_file file = {.recs = NULL};
    struct gb_error why = GB_ERROR_INIT;
    const struct gb_token_rec *had;
    unsigned line;

    if (options->tokens_file[0] == '\0')
        return 0;
    if (gb_tokens_file_read(&file, options->tokens_file, &why) != 0)
        fprintf(stderr, "gpubufd: %s\n", why.detail);
    had = gb_tokens_index_named(&file.index, name);
    line = had ? gb_tokens_file_line(&file, had) : 0;
    gb_tokens_file_done(&file);
    return line;
}

/* After a change in the database found no token of that name. */
static int not_found(const struct gb_options *options, const char *name, const struct gb_error *why, const char *what,
                     struct gb_error *err) {
    unsigned line = why->code == GB_ERR_TOKEN_NOT_FOUND ? line_of(options, name) : 0;

    if (line > 0)
        return gb_error_set(err, GB_ERR_TOKEN_NOT_FOUND, "token \"%.64s\" is in %.160s, line %u: %s", name,
                            options->tokens_file, line, what);
    return gb_error_move(err, why);
}

static void note_session(struct gb_token_store *tokens, const char *session) {
    bool known = true;

    if (session[0] != '\0' && gb_token_session_known(tokens, session, &known, NULL) == 0 && !known)
        fprintf(stderr, "there is no session %s yet: the token is good in it as soon as there is\n", session);
}

static int count_token(void *arg, const struct gb_token_rec *rec, struct gb_error *err) {
    (void)rec;
    (void)err;
    ++*(unsigned *)arg;
    return 0;
}

/* Before it, a daemon that listens to this machine alone served everybody on it. */
static void note_first(const struct gb_options *options, struct gb_token_store *tokens) {
    unsigned count = 0;

    if (options->tokens_file[0] == '\0' && gb_token_list(tokens, count_token, &count, NULL) == 0 && count == 1)
        fputs(
            "gpubufd: it is the only token: from now on the daemon refuses every request without a token, also on its "
            "UNIX socket\n",
            stderr);
}

/* A secret that is shown once must be where its line goes, or the token is of no use. */
static int show(const char *secret, struct gb_error *err) {
    if (puts(secret) >= 0 && fflush(stdout) == 0)
        return 0;
    return gb_error_set(err, GB_ERR_INTERNAL, "the secret cannot be shown (%s), and is not in force", strerror(errno));
}

/* --- commands ----------------------------------------------------------------------------------------------------- */

static int add(const struct gb_options *options, struct gb_token_store *tokens, const struct command *command,
               struct gb_error *err) {
    const char *given = command->line.own[SECRET_FILE];
    struct gb_token_rec rec = {.scopes = 1u << GB_SCOPE_READ};
    char scopes[GB_SCOPES_SIZE];
    char time[GB_RFC3339_SIZE];
    char secret[SECRET_SIZE];

    if (read_token(command, &rec, err) != 0 || new_secret(given, secret, rec.sha256_hex, err) != 0)
        return -1;
    rec.created_at_us = gb_wall_us();
    if (check_file(options, &rec, err) != 0 || gb_token_add(tokens, &rec, err) != 0)
        return -1;
    note_audit(options, tokens, GB_AUDIT_TOKEN_ADDED, rec.name.s, rec.session);
    fprintf(stderr, "token %s, scope %s", rec.name.s, gb_scopes_text(rec.scopes, scopes));
    say_word("session", rec.session);
    say_word("prefix", rec.prefix);
    say_word("subject", rec.subject);
    say_word("until", rec.expires_at_us > 0 ? gb_rfc3339(rec.expires_at_us, time) : "");
    fputs(given ? "; its secret is the one that was given, and a running daemon knows it within a second\n"
                : "; its secret is shown this once, and a running daemon knows it within a second:\n",
          stderr);
    if (!given && show(secret, err) != 0) {
        explicit_bzero(secret, sizeof(secret)); /* it is lost, and the token with it */
        if (gb_token_revoke(tokens, rec.name.s, NULL) == 0)
            note_audit(options, tokens, GB_AUDIT_TOKEN_REVOKED, rec.name.s, rec.session);
        return -1;
    }
    note_session(tokens, rec.session);
    note_first(options, tokens);
    explicit_bzero(secret, sizeof(secret));
    return 0;
}

static int rotate(const struct gb_options *options, struct gb_token_store *tokens, const struct command *command,
                  struct gb_error *err) {
    const char *given = command->line.own[SECRET_FILE];
    const char *overlap = command->line.own[OVERLAP] ? command->line.own[OVERLAP] : "1h";
    struct gb_error why = GB_ERROR_INIT;
    char hash[GB_SHA256_HEX_SIZE];
    char time[GB_RFC3339_SIZE];
    char secret[SECRET_SIZE];
    int64_t until_us = 0;
    uint64_t seconds;

    if (strcmp(overlap, "0") == 0)
        seconds = 0;
    else if (read_duration(overlap, &seconds) != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--overlap needs %s, not \"%.64s\"", owns[OVERLAP].help,
                            overlap);
    if (seconds > 0)
        until_us = gb_wall_us() + (int64_t)seconds * 1000000;
    if (new_secret(given, secret, hash, err) != 0)
        return -1;
    if (!given && show(secret, err) != 0) {
        explicit_bzero(secret, sizeof(secret));
        return -1;
    }
    if (gb_token_rotate(tokens, command->line.words[1], hash, until_us, &why) != 0)
        return not_found(options, command->line.words[1], &why, "give another secret or hash there", err);
    note_audit(options, tokens, GB_AUDIT_TOKEN_ROTATED, command->line.words[1], NULL);
    fprintf(stderr, "token %s has another secret, which is %s; the former one is good %s%s\n", command->line.words[1],
            given ? "the one that was given" : "shown this once", seconds > 0 ? "until " : "no longer",
            seconds > 0 ? gb_rfc3339(until_us, time) : "");
    explicit_bzero(secret, sizeof(secret));
    return 0;
}

/* The file is read as the daemon reads it. */
static int list(struct gb_token_store *tokens, const struct gb_options *options, bool json, struct gb_error *err) {
    struct gb_tokens_file file = {.recs = NULL};
    int r = 0;

    if (options->tokens_file[0] != '\0')
        r = gb_tokens_file_read(&file, options->tokens_file, err);
    if (r == 0)
        r = print_list(tokens, &file, json, err);
    gb_tokens_file_done(&file);
    return r;
}

/* Without a token, a daemon that listens on this machine alone is open. */
static int revoke_one(const struct gb_options *options, struct gb_token_store *tokens, const char *name,
                      struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    unsigned left = 0;
    unsigned line;

    if (gb_token_revoke(tokens, name, &why) != 0)
        return not_found(options, name, &why, "remove that line", err);
    note_audit(options, tokens, GB_AUDIT_TOKEN_REVOKED, name, NULL);
    fprintf(stderr, "token %s is revoked; a running daemon refuses it, and ends what it holds, within a second\n",
            name);
    line = line_of(options, name);
    if (line > 0)
        fprintf(stderr, "gpubufd: the token %s of %s, line %u, is in force now: remove that line to end it too\n", name,
                options->tokens_file, line);
    if (gb_token_list(tokens, count_token, &left, err) != 0)
        return -1;
    if (left == 0 && options->tokens_file[0] == '\0')
        fputs("gpubufd: no token is left: a daemon that listens to this machine alone now serves everybody on it, and "
              "one behind a proxy does so from its next start on; \"gpubufd token add NAME\" ends that\n",
              stderr);
    return 0;
}

static int usage(struct command *command, struct gb_error *err) {
    int verb = gb_command_verb(&about, &command->line);

    if (verb < 0 || words[verb] != command->line.count)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, USAGE);
    command->verb = (enum verb)verb;
    return gb_command_fits(&about, verb, &command->line, err);
}

static int run(struct gb_token_store *tokens, const struct gb_options *options, const struct command *command,
               struct gb_error *err) {
    switch (command->verb) {
    case ADD:
        return add(options, tokens, command, err);
    case LIST:
        return list(tokens, options, command->line.own[JSON], err);
    case REVOKE:
        return revoke_one(options, tokens, command->line.words[1], err);
    case ROTATE:
        return rotate(options, tokens, command, err);
    case VERBS:
        break;
    }
    return -1;
}

static enum gb_exit fail(const struct gb_error *err) {
    fprintf(stderr, "gpubufd: %s\n", err->detail);
    return err->code == GB_ERR_INVALID_ARGUMENT || err->code == GB_ERR_INVALID_NAME ? GB_EXIT_USAGE : GB_EXIT_SOFTWARE;
}

/* The database, which only adding makes: a list of a place without one must not look like an empty list. */
static int find_database(const struct gb_options *options, bool makes, char **ret_dir, char **ret_database,
                         struct gb_error *err) {
    *ret_dir = makes ? gb_state_dir(options->state_dir, err) : gb_state_dir_find(options->state_dir, err);
    if (!*ret_dir)
        return -1;
    *ret_database = gb_state_path(*ret_dir, "gpubufd.db");
    if (!*ret_database)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    if (!makes && access(*ret_database, F_OK) != 0)
        return gb_error_set(err, GB_ERR_INTERNAL,
                            "there are no tokens in %.128s, which has no database: name the daemon's state directory "
                            "with --state-dir DIR",
                            *ret_dir);
    return 0;
}

enum gb_exit gb_token_command(struct gb_options *options, int argc, char **argv) {
    struct gb_token_store *tokens = NULL;
    struct gb_error err = GB_ERROR_INIT;
    enum gb_exit status = GB_EXIT_OK;
    struct command command = {.line = {.most = 2}};
    char *state_dir = NULL;
    char *database = NULL;
    int r;

    gb_privileges_hide();
    r = gb_command_read(&about, options, argc, argv, &command.line, &err);
    if (r == 0 && options->help) {
        gb_command_help(stdout, &about, gb_command_verb(&about, &command.line));
        return GB_EXIT_OK;
    }
    if (r != 0 || usage(&command, &err) != 0 || gb_options_finish(options, &err) != 0)
        return gb_command_usage_error(&about, &err);
    r = find_database(options, command.verb == ADD, &state_dir, &database, &err);
    if (r == 0)
        r = gb_token_store_open(database, &tokens, &err);
    if (r == 0)
        r = run(tokens, options, &command, &err);
    /* A token in another state directory than the daemon's protects nothing. */
    if (r == 0)
        fprintf(stderr, "database: %s\n", database);
    if (r != 0)
        status = fail(&err);
    gb_token_store_close(tokens);
    free(database);
    free(state_dir);
    return status;
}
