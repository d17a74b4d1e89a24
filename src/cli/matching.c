/* Buffers by a shell's patterns: "[SESSION/]NAME", in which both parts may have wildcards. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

bool gb_cli_is_pattern(const char *text) {
    return strpbrk(text, "*?[") != NULL; /* which no name has */
}

/* Whether the part before the slash is one. */
static bool is_of_sessions(const char *text) {
    const char *slash = strchr(text, '/');
    const char *wild = strpbrk(text, "*?[");

    return slash != NULL && wild != NULL && wild < slash;
}

static bool matches(json_t *item, const char *pattern) {
    return fnmatch(pattern, gb_cli_text(item, "name"), 0) == 0;
}

/* The list of those that may match: the daemon knows of prefixes alone. What has characters that no name has is
 * compared here. */
static int target_of(struct gb_cli *cli, const char *session, const char *pattern, const char *query, char *ret) {
    size_t n = strspn(pattern, GB_CLI_NAME_LETTERS);
    char prefix[GPUBUF_NAME_SIZE];
    int rc;

    if (n == 0 || n >= sizeof prefix || strchr("._-", pattern[0]) != NULL) {
        rc = gb_cli_target(cli, ret, "/v1/sessions/{}/buffers", session);
        query += query[0] == '&';
        if (rc == 0 && query[0] != '\0')
            strcat(ret, "?");
    } else {
        snprintf(prefix, sizeof prefix, "%.*s", (int)n, pattern);
        rc = gb_cli_target(cli, ret, "/v1/sessions/{}/buffers?prefix={}", session, prefix);
    }
    if (rc == 0)
        strcat(ret, query); /* three names and GB_CLI_QUERY are less than GB_CLI_PATH */
    return rc;
}

/* Adds what matches in one session. -1 with cli->error set. */
static int add_session(struct gb_cli *cli, json_t *found, const char *session, const char *pattern, const char *query) {
    char target[GB_CLI_PATH];
    json_t *items = NULL;
    json_t *item;
    size_t i;

    if (target_of(cli, session, pattern, query, target) == 0)
        items = gb_cli_list(cli, target);
    if (items == NULL)
        return -1;
    json_array_foreach(items, i, item) {
        if (matches(item, pattern))
            json_array_append(found, item);
    }
    json_decref(items);
    return 0;
}

/* A session that goes meanwhile has no buffers. */
static int add_sessions(struct gb_cli *cli, json_t *found, const char *sessions, const char *pattern,
                        const char *query) {
    json_t *items = gb_cli_list(cli, "/v1/sessions");
    json_t *item;
    int rc = items != NULL ? 0 : -1;
    size_t i;

    json_array_foreach(items, i, item) {
        if (rc < 0 || !matches(item, sessions))
            continue;
        rc = add_session(cli, found, gb_cli_text(item, "name"), pattern, query);
        if (rc < 0 && cli->error.code == GPUBUF_SESSION_NOT_FOUND)
            rc = 0;
    }
    json_decref(items);
    return rc;
}

json_t *gb_cli_matching(struct gb_cli *cli, const char *pattern, const char *query) {
    const char *slash = strchr(pattern, '/');
    json_t *found = json_array();
    char text[2 * GPUBUF_NAME_SIZE];
    struct gb_cli_name name;
    int rc;

    /* "SESSION/": all of it */
    snprintf(text, sizeof text, "%s%s", pattern, slash != NULL && slash[1] == '\0' ? "*" : "");
    rc = gb_cli_name(cli, text, &name);
    if (rc == 0)
        rc = is_of_sessions(text) ? add_sessions(cli, found, name.session, name.name, query)
                                  : add_session(cli, found, name.session, name.name, query);
    if (rc == 0)
        return found;
    json_decref(found);
    return NULL;
}

int gb_cli_none_matches(struct gb_cli *cli, const char *pattern) {
    struct gb_cli_name name;

    if (gb_cli_name(cli, pattern, &name) < 0)
        return gb_cli_failed(cli);
    if (is_of_sessions(pattern))
        gb_cli_error(cli, GPUBUF_BUFFER_NOT_FOUND, "no buffer of any session matches %s", pattern);
    else
        gb_cli_error(cli, GPUBUF_BUFFER_NOT_FOUND,
                     gb_cli_is_pattern(name.name) ? "no buffer of session \"%s\" matches %s"
                                                  : "session \"%s\" has no buffer named \"%s\"",
                     name.session, name.name);
    cli->error.status = 404;
    return gb_cli_failed(cli);
}

/* --- several ------------------------------------------------------------------------------------------------------ */

/* A pattern that matches none is an error, as it is of rm(1). */
static int each_matching(struct gb_cli *cli, const char *pattern, gb_cli_buffer_fn *one, void *arg) {
    char full[2 * GPUBUF_NAME_SIZE];
    int worst = GB_CLI_DONE;
    json_t *items = gb_cli_matching(cli, pattern, "");
    json_t *item;
    size_t i;

    if (items == NULL)
        return gb_cli_failed(cli);
    if (json_array_size(items) == 0) {
        json_decref(items);
        return gb_cli_none_matches(cli, pattern);
    }
    json_array_foreach(items, i, item) {
        int status;

        if (atomic_load(&cli->interrupted))
            break;
        snprintf(full, sizeof full, "%s/%s", gb_cli_text(item, "session"), gb_cli_text(item, "name"));
        cli->about = gb_cli_text(item, "name");
        status = one(cli, strchr(pattern, '/') != NULL ? full : cli->about, arg);
        cli->about = NULL; /* it ends with the item */
        worst = worst == GB_CLI_DONE ? status : worst;
    }
    json_decref(items);
    return worst;
}

int gb_cli_each_buffer(struct gb_cli *cli, int argc, char **argv, gb_cli_buffer_fn *one, void *arg) {
    int worst = GB_CLI_DONE;
    int i;

    for (i = 0; i < argc && !atomic_load(&cli->interrupted); i++) {
        bool pattern = gb_cli_is_pattern(argv[i]);
        int status;

        cli->about = pattern ? NULL : argv[i];
        status = pattern ? each_matching(cli, argv[i], one, arg) : one(cli, argv[i], arg);
        worst = worst == GB_CLI_DONE ? status : worst;
    }
    cli->about = NULL;
    return worst == GB_CLI_DONE && atomic_load(&cli->interrupted) ? GB_CLI_INTERRUPTED : worst;
}

/* --- the question ------------------------------------------------------------------------------------------------- */

static bool says_yes(void) {
    char line[16];

    return fgets(line, sizeof line, stdin) != NULL && (line[0] == 'y' || line[0] == 'Y');
}

/* Of one pattern. */
static int confirm(struct gb_cli *cli, const char *pattern, const char *what) {
    json_t *items = gb_cli_matching(cli, pattern, "");
    unsigned long long count = json_array_size(items);

    if (items == NULL)
        return gb_cli_failed(cli);
    json_decref(items);
    if (count == 0) /* which is said when it is done */
        return GB_CLI_DONE;
    if (!isatty(STDIN_FILENO))
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "%s matches %llu buffers, in all sessions that match: add --yes to %s them", pattern,
                              count, what);
    fprintf(stderr, "gpubuf: %s %llu buffers that match %s? [y/N] ", what, count, pattern);
    if (says_yes())
        return GB_CLI_DONE;
    return gb_cli_refused(cli, GB_CLI_FAILED, "nothing was done");
}

int gb_cli_confirm(struct gb_cli *cli, int argc, char **argv, const char *what) {
    int rc = GB_CLI_DONE;
    int i;

    for (i = 0; i < argc && rc == GB_CLI_DONE && !cli->options.yes; i++)
        if (is_of_sessions(argv[i]))
            rc = confirm(cli, argv[i], what);
    return rc;
}
