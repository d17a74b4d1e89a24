#include "daemon/tls_cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/state_dir.h"
#include "tls/show.h"

#define DAYS 825
#define PERMITTED                                                                                                      \
    "tls: permitted: init [--dir DIR] [--name NAME]... [--ip ADDR]... [--days N] [--client NAME], client NAME "        \
    "[--dir DIR] [--days N], renew [--dir DIR] [--name NAME]... [--ip ADDR]... [--days N], show FILE"

/* --- the command line --------------------------------------------------------------------------------------------- */

static int set_dir(struct gb_tls_command *command, const char *value, struct gb_error *err) {
    free(command->dir);
    command->dir = strdup(value);
    if (command->dir == NULL)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    return value[0] != '\0' ? 0 : gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--dir is a folder");
}

static int set_days(struct gb_tls_command *command, const char *value, struct gb_error *err) {
    char *end;
    unsigned long days = strtoul(value, &end, 10);

    if (value[0] < '0' || value[0] > '9' || *end != '\0' || days < 1 || days > GB_TLS_DAYS_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--days \"%.64s\" is no number from 1 to %d", value,
                            GB_TLS_DAYS_MAX);
    command->days = (uint32_t)days;
    return 0;
}

static int set_name(struct gb_tls_command *command, const char *value, struct gb_error *err) {
    return gb_tls_names_add_host(&command->names, value, err);
}

static int set_address(struct gb_tls_command *command, const char *value, struct gb_error *err) {
    return gb_tls_names_add_address(&command->names, value, err);
}

static int set_client(struct gb_tls_command *command, const char *value, struct gb_error *err) {
    (void)err;
    command->client = value;
    return 0;
}

static const struct {
    const char *name;
    int (*set)(struct gb_tls_command *command, const char *value, struct gb_error *err);
} own[] = {
    {"--dir", set_dir}, {"--days", set_days}, {"--name", set_name}, {"--ip", set_address}, {"--client", set_client}};

/* One of the command's own options, with its value. Returns 1, 0 if it is none, or -1. */
static int take_own(struct gb_tls_command *command, int argc, char **argv, int *at, struct gb_error *err) {
    size_t i;

    for (i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        if (strcmp(argv[*at], own[i].name) != 0)
            continue;
        if (*at + 1 == argc)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s needs a value", own[i].name);
        *at += 2;
        return own[i].set(command, argv[*at - 1], err) == 0 ? 1 : -1;
    }
    return 0;
}

/* The words of the command and its own options; the daemon's options may stand among them. */
static int read_words(struct gb_options *options, int argc, char **argv, struct gb_tls_command *ret,
                      struct gb_error *err) {
    int at = 1;

    while (at < argc) {
        int taken = take_own(ret, argc, argv, &at, err);

        if (taken == 0)
            taken = gb_options_take(options, argc, argv, &at, err);
        if (taken < 0)
            return -1;
        if (taken == 0) {
            if (ret->count == 2)
                return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "tls: one word too many: \"%.64s\"", argv[at]);
            ret->words[ret->count++] = argv[at++];
        }
    }
    return 0;
}

/* --- where -------------------------------------------------------------------------------------------------------- */

static char *below(const char *dir, const char *name) {
    char *path = NULL;

    return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

int gb_tls_paths_init(struct gb_tls_paths *paths, const char *dir, struct gb_error *err) {
    *paths = (struct gb_tls_paths){below(dir, "authority"),  below(dir, "authority/ca.key"), below(dir, "ca.pem"),
                                   below(dir, "server.key"), below(dir, "server.pem"),       below(dir, "clients")};
    if (paths->authority_folder != NULL && paths->authority_key != NULL && paths->authority != NULL &&
        paths->server_key != NULL && paths->server != NULL && paths->clients != NULL)
        return 0;
    gb_tls_paths_done(paths);
    return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
}

void gb_tls_paths_done(struct gb_tls_paths *paths) {
    free(paths->authority_folder);
    free(paths->authority_key);
    free(paths->authority);
    free(paths->server_key);
    free(paths->server);
    free(paths->clients);
    *paths = (struct gb_tls_paths){0};
}

/* Without --dir: the folder tls of the state directory, which init makes. */
static int find_dir(struct gb_tls_command *command, const struct gb_options *options, bool makes,
                    struct gb_error *err) {
    char *state_dir;

    if (command->dir != NULL)
        return 0;
    state_dir = makes ? gb_state_dir(options->state_dir, err) : gb_state_dir_find(options->state_dir, err);
    if (state_dir == NULL)
        return -1;
    command->dir = gb_state_path(state_dir, "tls");
    free(state_dir);
    return command->dir != NULL ? 0 : gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
}

/* --- commands ----------------------------------------------------------------------------------------------------- */

static int show(const struct gb_tls_command *command, struct gb_error *err) {
    return gb_tls_show(stdout, command->words[1], gb_wall_us() / 1000000, err);
}

static const struct verb {
    const char *word;
    size_t words; /* with this one */
    bool days;
    bool names;
    bool client;
    int (*run)(const struct gb_tls_command *command, struct gb_error *err);
} verbs[] = {{"init", 1, true, true, true, gb_tls_init},
             {"client", 2, true, false, false, gb_tls_client},
             {"renew", 1, true, true, false, gb_tls_renew},
             {"show", 2, false, false, false, show}};

static const struct verb *find_verb(const struct gb_tls_command *command, struct gb_error *err) {
    size_t i;

    for (i = 0; command->count > 0 && i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        const struct verb *verb = &verbs[i];

        if (strcmp(verb->word, command->words[0]) != 0 || verb->words != command->count)
            continue;
        if ((verb->days || command->days == 0) && (verb->names || command->names.count == 0) &&
            (verb->client || command->client == NULL) && (verb->run != show || command->dir == NULL))
            return verb;
    }
    gb_error_set(err, GB_ERR_INVALID_ARGUMENT, PERMITTED);
    return NULL;
}

static enum gb_exit run(struct gb_options *options, int argc, char **argv, struct gb_tls_command *command) {
    struct gb_error err = GB_ERROR_INIT;
    const struct verb *verb;

    if (read_words(options, argc, argv, command, &err) != 0)
        return gb_usage_error(&err);
    if (options->help) {
        gb_options_help(stdout);
        return GB_EXIT_OK;
    }
    verb = find_verb(command, &err);
    if (verb == NULL || gb_options_finish(options, &err) != 0)
        return gb_usage_error(&err);
    if (command->days == 0)
        command->days = DAYS;
    if ((verb->run == show || find_dir(command, options, verb->run == gb_tls_init, &err) == 0) &&
        verb->run(command, &err) == 0)
        return GB_EXIT_OK;
    fprintf(stderr, "gpubufd: %s\n", err.detail);
    return err.code == GB_ERR_INVALID_ARGUMENT || err.code == GB_ERR_INVALID_NAME ? GB_EXIT_USAGE : GB_EXIT_SOFTWARE;
}

enum gb_exit gb_tls_command(struct gb_options *options, int argc, char **argv) {
    struct gb_tls_command command = {.count = 0};
    enum gb_exit status = run(options, argc, argv, &command);

    gb_tls_names_done(&command.names);
    free(command.dir);
    return status;
}
