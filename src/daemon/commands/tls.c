/* `gpubufd tls`: the files of a private authority and what it signs: certificates of servers and clients, new and
 * again. No file is overwritten but by a renewal. Needs no daemon. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"
#include "daemon/commands/command.h"
#include "daemon/state_dir.h"
#include "tls/names.h"
#include "tls/pair.h"

/* What the command line says. */
struct command {
    struct gb_command_line line; /* "client" and NAME, "show" and FILE */
    char *dir;                   /* malloc'd */
    uint32_t days;
    struct gb_tls_names names;
    const char *client; /* of init; NULL: none */
    bool only;          /* of a renewal: the former names go */
    bool renew;
    const char *state_dir; /* "": the default */
};

/* Paths below a folder, each malloc'd. */
struct paths {
    char *authority_folder; /* of the key, for its owner alone */
    char *authority_key;
    char *authority;
    char *server_key;
    char *server;
    char *servers; /* folders */
    char *clients;
};

/* A certificate with its key, and where it goes. */
struct target {
    const char *word; /* "server", "client" */
    const char *certificate;
    const char *key;
    const char *who; /* said where the certificate has no names */
};

/* --- where -------------------------------------------------------------------------------------------------------- */

static char *below(const char *dir, const char *name) {
    char *path = NULL;

    return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

static void paths_done(struct paths *paths) {
    free(paths->authority_folder);
    free(paths->authority_key);
    free(paths->authority);
    free(paths->server_key);
    free(paths->server);
    free(paths->servers);
    free(paths->clients);
    *paths = (struct paths){0};
}

static int paths_init(struct paths *paths, const char *dir, struct gb_error *err) {
    *paths = (struct paths){below(dir, "authority"),  below(dir, "authority/ca.key"), below(dir, "ca.pem"),
                            below(dir, "server.key"), below(dir, "server.pem"),       below(dir, "servers"),
                            below(dir, "clients")};
    if (paths->authority_folder && paths->authority_key && paths->authority && paths->server_key && paths->server &&
        paths->servers && paths->clients)
        return 0;
    paths_done(paths);
    return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
}

/* --- what an authority that is there signs ------------------------------------------------------------------------ */

#define NAMES_TEXT 1024

static int64_t now_s(void) {
    return gb_wall_us() / 1000000;
}

/* Makes it, and its parents, unless it is there. */
static int make_folder(const char *path, unsigned mode, struct gb_error *err) {
    char *copy = strdup(path);
    int r = copy ? gb_folders_make(copy, mode) : -1;

    if (r != 0)
        gb_error_set(err, GB_ERR_INTERNAL, "the folder %.200s cannot be made: %s", path, strerror(errno));
    free(copy);
    return r;
}

/* INVALID_ARGUMENT where a file is there. */
static int refuse_present(const char *path, const char *instead, struct gb_error *err) {
    if (access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s is there, and nothing is overwritten: %s", path, instead);
}

static int check_name(const char *what, const char *name, struct gb_error *err) {
    struct gb_name parsed;

    return gb_name_parse(what, name, strlen(name), &parsed, err);
}

static struct gb_tls_pair *load_authority(const struct paths *paths, struct gb_error *err) {
    if (access(paths->authority, F_OK) != 0 && errno == ENOENT) {
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                     "there is no authority %.200s: \"gpubufd tls init\" makes one, and --dir names its folder",
                     paths->authority);
        return NULL;
    }
    if (access(paths->authority_key, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                     "the authority's key %.200s is not there, and signs: put it back for this command",
                     paths->authority_key);
        return NULL;
    }
    return gb_tls_pair_load(paths->authority, paths->authority_key, err);
}

/* --- one certificate ---------------------------------------------------------------------------------------------- */

static int say(const struct target *target, int64_t until_s, FILE *out, struct gb_error *err) {
    char names[NAMES_TEXT];
    char date[GB_TLS_DATE_SIZE];

    if (gb_tls_names_text(target->certificate, names, sizeof(names), err) != 0)
        return -1;
    fprintf(out, "%-10s %s\n           %s\n           for %s, until %s\n", target->word, target->certificate,
            target->key, names[0] != '\0' ? names : target->who, gb_tls_date(until_s, date));
    return 0;
}

/* Makes, saves and says one. */
static int make_certificate(const struct target *target, const struct gb_tls_plan *plan,
                            const struct gb_tls_pair *authority, FILE *out, struct gb_error *err) {
    struct gb_tls_pair *pair = gb_tls_pair_make(plan, authority, err);
    int r = pair ? gb_tls_pair_save(pair, target->certificate, target->key, err) : -1;

    if (r == 0)
        r = say(target, gb_tls_pair_until(pair), out, err);
    gb_tls_pair_free(pair);
    return r;
}

static void say_names(const char *word, const struct gb_tls_names *names) {
    size_t i;

    for (i = 0; i < names->count; i++)
        printf("%s%s", i == 0 ? word : ", ", names->items[i].text);
    if (names->count > 0)
        putchar('\n');
}

static int say_changes(const struct gb_tls_pair *old, const struct gb_tls_pair *pair, struct gb_error *err) {
    struct gb_tls_names before = {0};
    struct gb_tls_names after = {0};
    struct gb_tls_names came = {0};
    struct gb_tls_names went = {0};
    int r = gb_tls_pair_names(old, &before, err);

    if (r == 0)
        r = gb_tls_pair_names(pair, &after, err);
    if (r == 0)
        r = gb_tls_names_add_others(&came, &after, &before, err);
    if (r == 0)
        r = gb_tls_names_add_others(&went, &before, &after, err);
    if (r == 0) {
        say_names("           new: ", &came);
        say_names("           gone: ", &went);
    }
    gb_tls_names_done(&before);
    gb_tls_names_done(&after);
    gb_tls_names_done(&came);
    gb_tls_names_done(&went);
    return r;
}

static struct gb_tls_pair *load_old(const struct target *target, struct gb_error *err) {
    if (access(target->certificate, F_OK) == 0 || errno != ENOENT)
        return gb_tls_pair_load(target->certificate, target->key, err);
    gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "there is no %.200s that could be made again", target->certificate);
    return NULL;
}

/* Makes a certificate again, with its key, and with its names unless only those of the command are wanted. */
static int make_again(const struct command *command, enum gb_tls_role role, const struct target *target,
                      const struct gb_tls_pair *authority, struct gb_error *err) {
    struct gb_tls_pair *old = load_old(target, err);
    struct gb_tls_names had = {0};
    struct gb_tls_names more = {0};
    struct gb_tls_plan plan = {
        .role = role, .names = &more, .only = command->only, .now_s = now_s(), .days = command->days};
    struct gb_tls_pair *pair = NULL;
    int r = -1;

    if (old && gb_tls_pair_names(old, &had, err) == 0 &&
        gb_tls_names_add_others(&more, &command->names, command->only ? NULL : &had, err) == 0) {
        if (command->only)
            plan.common_name = more.items[0].text;
        pair = gb_tls_pair_renew(&plan, old, authority, err);
    }
    if (pair)
        r = gb_tls_pair_replace(pair, target->certificate, err);
    if (r == 0)
        r = say(target, gb_tls_pair_until(pair), stdout, err);
    if (r == 0)
        r = say_changes(old, pair, err);
    gb_tls_names_done(&had);
    gb_tls_names_done(&more);
    gb_tls_pair_free(pair);
    gb_tls_pair_free(old);
    return r;
}

/* --- commands ----------------------------------------------------------------------------------------------------- */

struct files {
    char certificate[PATH_MAX];
    char key[PATH_MAX];
};

static int name_files(struct files *files, const char *folder, const char *name, struct gb_error *err) {
    int n = snprintf(files->certificate, PATH_MAX, "%s/%s.pem", folder, name);

    if (n >= PATH_MAX || snprintf(files->key, PATH_MAX, "%s/%s.key", folder, name) >= PATH_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the path of %.64s is too long", name);
    return 0;
}

static int make_new(const struct files *files, const char *folder, const char *word, const struct gb_tls_plan *plan,
                    const struct gb_tls_pair *authority, FILE *out, struct gb_error *err) {
    const struct target target = {word, files->certificate, files->key, plan->common_name};
    const char *instead = "--renew makes the certificate again with the same key, and another NAME another one";

    if (refuse_present(files->certificate, instead, err) != 0 || refuse_present(files->key, instead, err) != 0 ||
        make_folder(folder, 0700, err) != 0)
        return -1;
    return make_certificate(&target, plan, authority, out, err);
}

static int make_client(const struct paths *paths, const struct gb_tls_pair *authority, const char *name, uint32_t days,
                       FILE *out, struct gb_error *err) {
    const struct gb_tls_plan plan = {.role = GB_TLS_CLIENT, .common_name = name, .now_s = now_s(), .days = days};
    struct files files;

    if (name_files(&files, paths->clients, name, err) != 0)
        return -1;
    return make_new(&files, paths->clients, "client", &plan, authority, out, err);
}

/* A server's without names is for its NAME, as a client's always is. */
static int make_server(const struct command *command, const struct paths *paths, const struct gb_tls_pair *authority,
                       struct gb_error *err) {
    const char *name = command->line.words[1];
    struct gb_tls_names names = {0};
    struct files files;
    int r = gb_tls_names_add_others(&names, &command->names, NULL, err);

    if (r == 0 && names.count == 0)
        r = gb_tls_names_add_host(&names, name, err);
    if (r == 0)
        r = name_files(&files, paths->servers, name, err);
    if (r == 0) {
        const struct gb_tls_plan plan = {.role = GB_TLS_SERVER,
                                         .names = &names,
                                         .common_name = names.items[0].text,
                                         .now_s = now_s(),
                                         .days = command->days};

        r = make_new(&files, paths->servers, "server", &plan, authority, stdout, err);
    }
    if (r == 0)
        printf("\nThe daemon takes it beside another one:\n  --tls-cert %s --tls-key %s\n", files.certificate,
               files.key);
    gb_tls_names_done(&names);
    return r;
}

static int run_server(const struct command *command, struct gb_error *err) {
    struct gb_tls_pair *authority;
    struct paths paths;
    struct files files;
    int r = -1;

    if (check_name("server's name", command->line.words[1], err) != 0 || paths_init(&paths, command->dir, err) != 0)
        return -1;
    authority = load_authority(&paths, err);
    if (authority && !command->renew)
        r = make_server(command, &paths, authority, err);
    else if (authority && name_files(&files, paths.servers, command->line.words[1], err) == 0)
        r = make_again(command, GB_TLS_SERVER, &(struct target){"server", files.certificate, files.key, "no name"},
                       authority, err);
    gb_tls_pair_free(authority);
    paths_done(&paths);
    return r;
}

static int run_client(const struct command *command, struct gb_error *err) {
    const char *name = command->line.words[1];
    struct gb_tls_pair *authority;
    struct paths paths;
    struct files files;
    int r = -1;

    if (check_name("client's name", name, err) != 0 || paths_init(&paths, command->dir, err) != 0)
        return -1;
    authority = load_authority(&paths, err);
    if (authority && !command->renew)
        r = make_client(&paths, authority, name, command->days, stdout, err);
    else if (authority && name_files(&files, paths.clients, name, err) == 0)
        r = make_again(command, GB_TLS_CLIENT, &(struct target){"client", files.certificate, files.key, name},
                       authority, err);
    if (r == 0)
        printf("\nThe client takes both files and a copy of %s:\n  gpubuf --url https://HOST:7443 --cacert ca.pem "
               "--cert %s.pem --key %s.key info\n\"gpubufd token add %s --subject CN=%s\" makes the certificate as "
               "good as "
               "a token.\n",
               paths.authority, name, name, name, name);
    gb_tls_pair_free(authority);
    paths_done(&paths);
    return r;
}

/* Makes the server's certificate again, with the key that it has. */
static int run_renew(const struct command *command, struct gb_error *err) {
    struct gb_tls_pair *authority;
    struct paths paths;
    int r = -1;

    if (paths_init(&paths, command->dir, err) != 0)
        return -1;
    authority = load_authority(&paths, err);
    if (authority)
        r = make_again(command, GB_TLS_SERVER, &(struct target){"server", paths.server, paths.server_key, "no name"},
                       authority, err);
    gb_tls_pair_free(authority);
    paths_done(&paths);
    return r;
}

/* --- init --------------------------------------------------------------------------------------------------------- */

static int prepare(const char *dir, const struct paths *paths, struct gb_error *err) {
    const char *const made[] = {paths->authority_key, paths->authority, paths->server_key, paths->server};
    size_t i;

    for (i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
        if (refuse_present(made[i],
                           "\"gpubufd tls renew\" makes the server's certificate again, and --dir names another folder",
                           err) != 0)
            return -1;
    }
    return make_folder(dir, 0755, err) == 0 ? make_folder(paths->authority_folder, 0700, err) : -1;
}

/* Two authorities of one name could not be distinguished: a number is part of it. */
static struct gb_tls_pair *make_authority(const char *machine, struct gb_error *err) {
    struct gb_tls_plan plan = {.role = GB_TLS_AUTHORITY, .now_s = now_s(), .days = GB_TLS_DAYS_MAX};
    unsigned char number[4];
    char name[64];

    if (gb_random(number, sizeof(number), err) != 0)
        return NULL;
    snprintf(name, sizeof(name), "gpubufd authority %02x%02x%02x%02x of %.28s", number[0], number[1], number[2],
             number[3], machine);
    plan.common_name = name;
    return gb_tls_pair_make(&plan, NULL, err);
}

/* Commands that work as they stand: a daemon that other machines reach needs a token first. */
static void say_next(const struct command *command, const struct paths *paths, const char *machine) {
    const char *option = command->state_dir[0] != '\0' ? " --state-dir " : "";
    const char *name = command->client;

    printf("\nThe daemon needs a token, whose secret this prints, and then takes the certificate:\n"
           "  gpubufd token add boss --scope admin%s%s\n"
           "  gpubufd --listen none --tls-listen 0.0.0.0:7443 --tls-cert %s --tls-key %s%s%s\n",
           option, command->state_dir, paths->server, paths->server_key, option, command->state_dir);
    printf("and, so that clients may show a certificate of this authority, also:\n  --tls-client-ca %s\n",
           paths->authority);
    printf("\nClients take a copy of %s, and have the secret in GPUBUF_TOKEN:\n"
           "  gpubuf --url https://%s:7443 --cacert ca.pem info\n",
           paths->authority, machine);
    printf("  GPUBUF_URL=https://%s:7443 GPUBUF_CACERT=/path/to/ca.pem\n", machine);
    if (name)
        printf("and this one, of its own files: --cert %s.pem --key %s.key (GPUBUF_CERT, GPUBUF_KEY)\n", name, name);
    else
        printf("\"gpubufd tls client NAME\" makes a certificate for a client.\n");
    printf(
        "\nWith %s anyone can make certificates that these clients trust:\nthe daemon never reads it, and it is best "
        "moved to a place apart.\n",
        paths->authority_key);
}

/* All or nothing: what was made before a failure is taken away. */
static int init(const struct command *command, const struct paths *paths, const struct gb_tls_names *names, FILE *out,
                struct gb_error *err) {
    const struct gb_tls_plan plan = {.role = GB_TLS_SERVER,
                                     .names = names,
                                     .common_name = names->items[0].text,
                                     .now_s = now_s(),
                                     .days = command->days};
    const struct target server = {"server", paths->server, paths->server_key, "no name"};
    struct gb_tls_pair *authority = make_authority(names->items[0].text, err);
    char date[GB_TLS_DATE_SIZE];
    int r = -1;

    if (authority)
        r = gb_tls_pair_save(authority, paths->authority, paths->authority_key, err);
    if (r == 0) {
        fprintf(out, "authority  %s\n           %s\n           until %s\n", paths->authority, paths->authority_key,
                gb_tls_date(gb_tls_pair_until(authority), date));
        r = make_certificate(&server, &plan, authority, out, err);
        if (r == 0 && command->client)
            r = make_client(paths, authority, command->client, command->days, out, err);
        if (r != 0) {
            unlink(paths->authority);
            unlink(paths->authority_key);
            unlink(paths->server);
            unlink(paths->server_key);
        }
    }
    gb_tls_pair_free(authority);
    return r;
}

/* With names of one's own the machine's come behind them: the certificate is good for both. */
static int run_init(const struct command *command, struct gb_error *err) {
    struct gb_tls_names names = {0};
    struct paths paths;
    char *said = NULL; /* of what is made, once all of it is */
    size_t bytes;
    FILE *out;
    int r = paths_init(&paths, command->dir, err);

    if (r != 0)
        return -1;
    if (command->client)
        r = check_name("client's name", command->client, err);
    if (r == 0)
        r = gb_tls_names_add_others(&names, &command->names, NULL, err);
    if (r == 0)
        r = gb_tls_names_add_machine(&names, err);
    if (r == 0)
        r = prepare(command->dir, &paths, err);
    out = open_memstream(&said, &bytes);
    if (r == 0 && !out)
        r = gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    if (r == 0)
        r = init(command, &paths, &names, out, err);
    if (out)
        fclose(out);
    if (r == 0)
        fputs(said, stdout);
    if (r == 0)
        say_next(command, &paths, names.items[0].text);
    free(said);
    gb_tls_names_done(&names);
    paths_done(&paths);
    return r;
}

/* --- words -------------------------------------------------------------------------------------------------------- */

#define DAYS 825

enum verb { INIT, SERVER, CLIENT, RENEW, SHOW, VERBS };

static const struct gb_command_verb helps[VERBS] = {
    [INIT] = {"init [--name NAME]... [--ip ADDR]... [--client NAME] [OPTION...]",
              "Makes a private authority and the server's certificate, for these names and all of this machine, and "
              "prints what the "
              "daemon and its clients take then"},
    [SERVER] = {"server NAME [--name NAME]... [--ip ADDR]... [OPTION...]",
                "Makes another server's certificate, servers/NAME.pem, for these names alone or for NAME"},
    [CLIENT] = {"client NAME [OPTION...]", "Makes a client's certificate, clients/NAME.pem, with the subject CN=NAME"},
    [RENEW] = {"renew [--name NAME]... [--ip ADDR]... [--only] [OPTION...]",
               "Makes the server's certificate again with the same key, for the names that it had and these"},
    [SHOW] = {"show FILE", "Prints what stands in each certificate of a file"},
};

#define SIGNS (1u << INIT | 1u << SERVER | 1u << CLIENT | 1u << RENEW)
#define NAMED (1u << INIT | 1u << SERVER | 1u << RENEW)

static const enum gb_option_id of_daemon[] = {GB_OPTION_ID_state_dir, GB_OPTION_ID_config};

/* --- the command line --------------------------------------------------------------------------------------------- */

static int set_dir(struct command *command, const char *value, struct gb_error *err) {
    free(command->dir);
    command->dir = strdup(value);
    if (!command->dir)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    return value[0] != '\0' ? 0 : gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--dir is a folder");
}

static int set_days(struct command *command, const char *value, struct gb_error *err) {
    char *end;
    unsigned long days = strtoul(value, &end, 10);

    if (value[0] < '0' || value[0] > '9' || *end != '\0' || days < 1 || days > GB_TLS_DAYS_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--days \"%.64s\" is no number from 1 to %d", value,
                            GB_TLS_DAYS_MAX);
    command->days = (uint32_t)days;
    return 0;
}

static int set_name(struct command *command, const char *value, struct gb_error *err) {
    return gb_tls_names_add_host(&command->names, value, err);
}

static int set_address(struct command *command, const char *value, struct gb_error *err) {
    return gb_tls_names_add_address(&command->names, value, err);
}

static int set_client(struct command *command, const char *value, struct gb_error *err) {
    (void)err;
    command->client = value;
    return 0;
}

static int set_only(struct command *command, const char *value, struct gb_error *err) {
    (void)value;
    (void)err;
    command->only = true;
    return 0;
}

static int set_renew(struct command *command, const char *value, struct gb_error *err) {
    (void)value;
    (void)err;
    command->renew = true;
    return 0;
}

static const struct gb_command_option owns[] = {
    {"--dir", "DIR", "the folder of the authority; default: tls in the state directory", SIGNS},
    {"--name", "NAME", "a host name that the certificate is for; may be repeated", NAMED},
    {"--ip", "ADDR", "an address that it is for; may be repeated", NAMED},
    {"--days", "N", "how long it is good, from 1 to 3650 (default 825)", SIGNS},
    {"--client", "NAME", "makes a client's certificate as well", 1u << INIT},
    {"--renew", "", "makes the one that is there again, with the same key", 1u << SERVER | 1u << CLIENT},
    {"--only", "", "the names that it had and that are not given go", 1u << SERVER | 1u << RENEW},
};

/* In the order of owns. */
static int (*const setters[])(struct command *command, const char *value, struct gb_error *err) = {
    set_dir, set_name, set_address, set_days, set_client, set_renew, set_only};

static const struct gb_command about = {.word = "tls",
                                        .verbs = helps,
                                        .verb_count = VERBS,
                                        .options = owns,
                                        .option_count = sizeof(owns) / sizeof(owns[0]),
                                        .of_daemon = of_daemon,
                                        .of_daemon_count = sizeof(of_daemon) / sizeof(of_daemon[0])};

static int take_own(void *arg, int own, const char *value, struct gb_error *err) {
    return setters[own](arg, value, err);
}

/* --- the folder --------------------------------------------------------------------------------------------------- */

/* Without --dir: the folder tls of the state directory, which init makes. */
static int find_dir(struct command *command, const struct gb_options *options, bool makes, struct gb_error *err) {
    char *state_dir;

    if (command->dir)
        return 0;
    state_dir = makes ? gb_state_dir(options->state_dir, err) : gb_state_dir_find(options->state_dir, err);
    if (!state_dir)
        return -1;
    command->dir = gb_state_path(state_dir, "tls");
    free(state_dir);
    return command->dir ? 0 : gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static int show(const struct command *command, struct gb_error *err) {
    return gb_tls_show(stdout, command->line.words[1], gb_wall_us() / 1000000, err);
}

static const struct {
    size_t words; /* with its own */
    int (*run)(const struct command *command, struct gb_error *err);
} verbs[VERBS] = {[INIT] = {1, run_init},
                  [SERVER] = {2, run_server},
                  [CLIENT] = {2, run_client},
                  [RENEW] = {1, run_renew},
                  [SHOW] = {2, show}};

static int check(const struct command *command, int verb, struct gb_error *err) {
    if (verb < 0 || verbs[verb].words != command->line.count)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "tls: permitted: init, server NAME, client NAME, renew, show FILE");
    if (gb_command_fits(&about, verb, &command->line, err) != 0)
        return -1;
    if (command->only && (command->names.count == 0 || (verb == SERVER && !command->renew)))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "--only goes with --name or --ip, for a certificate that is made again");
    return 0;
}

enum gb_exit gb_tls_command(struct gb_options *options, int argc, char **argv) {
    struct command command = {.line = {.most = 2, .take = take_own, .arg = &command}};
    struct gb_error err = GB_ERROR_INIT;
    enum gb_exit status = GB_EXIT_OK;
    int r = gb_command_read(&about, options, argc, argv, &command.line, &err);
    int verb = gb_command_verb(&about, &command.line);

    if (r == 0 && options->help) {
        gb_command_help(stdout, &about, verb);
        goto out;
    }
    if (r != 0 || check(&command, verb, &err) != 0 || gb_options_finish(options, &err) != 0) {
        status = gb_command_usage_error(&about, &err);
        goto out;
    }
    if (command.days == 0)
        command.days = DAYS;
    command.state_dir = options->state_dir;
    if ((verb == SHOW || find_dir(&command, options, verb == INIT, &err) == 0) && verbs[verb].run(&command, &err) == 0)
        goto out;
    fprintf(stderr, "gpubufd: %s\n", err.detail);
    status = err.code == GB_ERR_INVALID_ARGUMENT || err.code == GB_ERR_INVALID_NAME ? GB_EXIT_USAGE : GB_EXIT_SOFTWARE;

out:
    gb_tls_names_done(&command.names);
    free(command.dir);
    return status;
}
