#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/digest.h"
#include "daemon/cage/privileges.h"
#include "daemon/daemon.h"
#include "daemon/state_dir.h"

#define SECRET_BYTES 32
#define SECRET_SIZE (sizeof "gpb_" + 2 * SECRET_BYTES)

struct command {
    const char *words[2]; /* "add" and NAME */
    size_t count;
    const char *scope;   /* NULL when not given */
    const char *session; /* NULL when not given */
};

/* The words of the command and its own options; the daemon's options may stand among them. */
static int read_words(struct gb_options *options, int argc, char **argv, struct command *ret, struct gb_error *err) {
    int at = 1;

    while (at < argc) {
        const char **own = strcmp(argv[at], "--scope") == 0     ? &ret->scope
                           : strcmp(argv[at], "--session") == 0 ? &ret->session
                                                                : NULL;
        int taken;

        if (own != NULL) {
            if (at + 1 == argc)
                return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s needs a value: %s", argv[at],
                                    own == &ret->scope ? "read, write, map, map-write, admin, or several between commas"
                                                       : "the name of a session");
            *own = argv[at + 1];
            at += 2;
            continue;
        }
        taken = gb_options_take(options, argc, argv, &at, err);
        if (taken < 0)
            return -1;
        if (taken == 0) {
            if (ret->count == 2)
                return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "token: one word too many: \"%.64s\"", argv[at]);
            ret->words[ret->count++] = argv[at++];
        }
    }
    return 0;
}

static int make_secret(char *out, struct gb_error *err) {
    unsigned char bytes[SECRET_BYTES];
    size_t i;

    if (gb_random(bytes, sizeof bytes, err) != 0)
        return -1;
    memcpy(out, "gpb_", 4);
    for (i = 0; i < sizeof bytes; i++)
        snprintf(out + 4 + 2 * i, 3, "%02x", bytes[i]);
    explicit_bzero(bytes, sizeof bytes);
    return 0;
}

static int add(struct gb_token_store *tokens, const struct command *command, struct gb_error *err) {
    struct gb_token_rec rec = {.scopes = 1u << GB_SCOPE_READ};
    char scopes[GB_SCOPES_SIZE];
    char secret[SECRET_SIZE];
    struct gb_name session;

    if (gb_name_parse("token name", command->words[1], strlen(command->words[1]), &rec.name, err) != 0)
        return -1;
    if (command->scope != NULL && gb_scopes_parse(command->scope, strlen(command->scope), &rec.scopes, err) != 0)
        return -1;
    if (command->session != NULL) {
        if (gb_name_parse("session name", command->session, strlen(command->session), &session, err) != 0)
            return -1;
        memcpy(rec.session, session.s, sizeof rec.session);
    }
    if (make_secret(secret, err) != 0 || gb_sha256_hex(secret, strlen(secret), rec.sha256_hex, err) != 0)
        return -1;
    rec.created_at_us = gb_wall_us();
    if (gb_token_add(tokens, &rec, err) != 0)
        return -1;
    fprintf(stderr, "token %s, scope %s%s%s; its secret is shown this once:\n", rec.name.s,
            gb_scopes_text(rec.scopes, scopes), rec.session[0] != '\0' ? ", session " : "", rec.session);
    puts(secret);
    explicit_bzero(secret, sizeof secret);
    return 0;
}

static int print_token(void *arg, const struct gb_token_rec *rec, struct gb_error *err) {
    char scopes[GB_SCOPES_SIZE];
    char when[GB_RFC3339_SIZE];

    (void)arg;
    (void)err;
    printf("%-24s %-15s %-24s %s\n", rec->name.s, gb_scopes_text(rec->scopes, scopes),
           rec->session[0] != '\0' ? rec->session : "(all)", gb_rfc3339(rec->created_at_us, when));
    return 0;
}

static int list(struct gb_token_store *tokens, struct gb_error *err) {
    printf("%-24s %-15s %-24s %s\n", "NAME", "SCOPE", "SESSION", "CREATED");
    return gb_token_list(tokens, print_token, NULL, err);
}

static int count_token(void *arg, const struct gb_token_rec *rec, struct gb_error *err) {
    (void)rec;
    (void)err;
    ++*(unsigned *)arg;
    return 0;
}

/* Without a token, a daemon that listens on this machine alone is open. */
static int revoke_one(struct gb_token_store *tokens, const char *name, struct gb_error *err) {
    unsigned left = 0;

    if (gb_token_revoke(tokens, name, err) != 0 || gb_token_list(tokens, count_token, &left, err) != 0)
        return -1;
    if (left == 0)
        fputs("gpubufd: no token is left: a daemon that listens to this machine alone now serves everybody on it; "
              "\"gpubufd token add NAME\" ends that\n",
              stderr);
    return 0;
}

static int usage(const struct command *command, struct gb_error *err) {
    bool adds = command->count == 2 && strcmp(command->words[0], "add") == 0;
    bool revokes = command->count == 2 && strcmp(command->words[0], "revoke") == 0;
    bool lists = command->count == 1 && strcmp(command->words[0], "list") == 0;

    if (!adds && !revokes && !lists)
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "token: permitted: add NAME [--scope read|write|map|map-write|admin[,...]] [--session SESSION], list, "
            "revoke NAME");
    if (!adds && (command->scope != NULL || command->session != NULL))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "token: --scope and --session go with add only");
    return 0;
}

static enum gb_exit fail(const struct gb_error *err) {
    fprintf(stderr, "gpubufd: %s\n", err->detail);
    return err->code == GB_ERR_INVALID_ARGUMENT || err->code == GB_ERR_INVALID_NAME ? GB_EXIT_USAGE : GB_EXIT_SOFTWARE;
}

/* The database, which only adding makes: looking into a place where there is none must not look as if there were. */
static int find_database(const struct gb_options *options, bool makes, char **ret_dir, char **ret_database,
                         struct gb_error *err) {
    *ret_dir = makes ? gb_state_dir(options->state_dir, err) : gb_state_dir_find(options->state_dir, err);
    if (*ret_dir == NULL)
        return -1;
    *ret_database = gb_state_path(*ret_dir, "gpubufd.db");
    if (*ret_database == NULL)
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
    struct command command = {0};
    char *state_dir = NULL;
    char *database = NULL;
    int rc;

    gb_privileges_hide();
    rc = read_words(options, argc, argv, &command, &err);
    if (rc == 0 && options->help) {
        gb_options_help(stdout);
        return GB_EXIT_OK;
    }
    if (rc != 0 || usage(&command, &err) != 0 || gb_options_finish(options, &err) != 0)
        return gb_usage_error(&err);
    rc = find_database(options, command.words[0][0] == 'a', &state_dir, &database, &err);
    if (rc == 0)
        rc = gb_token_store_open(database, &tokens, &err);
    if (rc == 0 && command.words[0][0] == 'a')
        rc = add(tokens, &command, &err);
    else if (rc == 0 && command.words[0][0] == 'l')
        rc = list(tokens, &err);
    else if (rc == 0)
        rc = revoke_one(tokens, command.words[1], &err);
    /* A token in another state directory than the daemon's protects nothing. */
    if (rc == 0)
        fprintf(stderr, "database: %s\n", database);
    if (rc != 0)
        status = fail(&err);
    gb_token_store_close(tokens);
    free(database);
    free(state_dir);
    return status;
}
