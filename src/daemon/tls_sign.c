/* What an authority that is there signs: certificates of servers and clients, new and again. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/name.h"
#include "daemon/state_dir.h"
#include "daemon/tls_cmd.h"
#include "tls/show.h"

#define NAMES_TEXT 1024

int64_t gb_tls_now(void) {
    return gb_wall_us() / 1000000;
}

int gb_tls_make_folder(const char *path, unsigned mode, struct gb_error *err) {
    char *copy = strdup(path);
    int rc = copy ? gb_folders_make(copy, mode) : -1;

    if (rc != 0)
        gb_error_set(err, GB_ERR_INTERNAL, "the folder %.200s cannot be made: %s", path, strerror(errno));
    free(copy);
    return rc;
}

int gb_tls_refuse_present(const char *path, const char *instead, struct gb_error *err) {
    if (access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s is there, and nothing is overwritten: %s", path, instead);
}

int gb_tls_check_name(const char *what, const char *name, struct gb_error *err) {
    struct gb_name parsed;

    return gb_name_parse(what, name, strlen(name), &parsed, err);
}

static struct gb_tls_pair *load_authority(const struct gb_tls_paths *paths, struct gb_error *err) {
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

static int say(const struct gb_tls_target *target, int64_t until_s, FILE *out, struct gb_error *err) {
    char names[NAMES_TEXT];
    char date[GB_TLS_DATE_SIZE];

    if (gb_tls_names_text(target->certificate, names, sizeof(names), err) != 0)
        return -1;
    fprintf(out, "%-10s %s\n           %s\n           for %s, until %s\n", target->word, target->certificate,
            target->key, names[0] != '\0' ? names : target->who, gb_tls_date(until_s, date));
    return 0;
}

int gb_tls_make(const struct gb_tls_target *target, const struct gb_tls_plan *plan, const struct gb_tls_pair *authority,
                FILE *out, struct gb_error *err) {
    struct gb_tls_pair *pair = gb_tls_pair_make(plan, authority, err);
    int rc = pair != NULL ? gb_tls_pair_save(pair, target->certificate, target->key, err) : -1;

    if (rc == 0)
        rc = say(target, gb_tls_pair_until(pair), out, err);
    gb_tls_pair_free(pair);
    return rc;
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
    int rc = gb_tls_pair_names(old, &before, err);

    if (rc == 0)
        rc = gb_tls_pair_names(pair, &after, err);
    if (rc == 0)
        rc = gb_tls_names_add_others(&came, &after, &before, err);
    if (rc == 0)
        rc = gb_tls_names_add_others(&went, &before, &after, err);
    if (rc == 0) {
        say_names("           new: ", &came);
        say_names("           gone: ", &went);
    }
    gb_tls_names_done(&before);
    gb_tls_names_done(&after);
    gb_tls_names_done(&came);
    gb_tls_names_done(&went);
    return rc;
}

static struct gb_tls_pair *load_old(const struct gb_tls_target *target, struct gb_error *err) {
    if (access(target->certificate, F_OK) == 0 || errno != ENOENT)
        return gb_tls_pair_load(target->certificate, target->key, err);
    gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "there is no %.200s that could be made again", target->certificate);
    return NULL;
}

/* Makes a certificate again, with its key, and with its names unless only those of the command are wanted. */
static int make_again(const struct gb_tls_command *command, enum gb_tls_role role, const struct gb_tls_target *target,
                      const struct gb_tls_pair *authority, struct gb_error *err) {
    struct gb_tls_pair *old = load_old(target, err);
    struct gb_tls_names had = {0};
    struct gb_tls_names more = {0};
    struct gb_tls_plan plan = {
        .role = role, .names = &more, .only = command->only, .now_s = gb_tls_now(), .days = command->days};
    struct gb_tls_pair *pair = NULL;
    int rc = -1;

    if (old != NULL && gb_tls_pair_names(old, &had, err) == 0 &&
        gb_tls_names_add_others(&more, &command->names, command->only ? NULL : &had, err) == 0) {
        if (command->only)
            plan.common_name = more.items[0].text;
        pair = gb_tls_pair_renew(&plan, old, authority, err);
    }
    if (pair != NULL)
        rc = gb_tls_pair_replace(pair, target->certificate, err);
    if (rc == 0)
        rc = say(target, gb_tls_pair_until(pair), stdout, err);
    if (rc == 0)
        rc = say_changes(old, pair, err);
    gb_tls_names_done(&had);
    gb_tls_names_done(&more);
    gb_tls_pair_free(pair);
    gb_tls_pair_free(old);
    return rc;
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
    const struct gb_tls_target target = {word, files->certificate, files->key, plan->common_name};
    const char *instead = "--renew makes the certificate again with the same key, and another NAME another one";

    if (gb_tls_refuse_present(files->certificate, instead, err) != 0 ||
        gb_tls_refuse_present(files->key, instead, err) != 0 || gb_tls_make_folder(folder, 0700, err) != 0)
        return -1;
    return gb_tls_make(&target, plan, authority, out, err);
}

int gb_tls_make_client(const struct gb_tls_paths *paths, const struct gb_tls_pair *authority, const char *name,
                       uint32_t days, FILE *out, struct gb_error *err) {
    const struct gb_tls_plan plan = {.role = GB_TLS_CLIENT, .common_name = name, .now_s = gb_tls_now(), .days = days};
    struct files files;

    if (name_files(&files, paths->clients, name, err) != 0)
        return -1;
    return make_new(&files, paths->clients, "client", &plan, authority, out, err);
}

/* A server's without names is for its NAME, as a client's always is. */
static int make_server(const struct gb_tls_command *command, const struct gb_tls_paths *paths,
                       const struct gb_tls_pair *authority, struct gb_error *err) {
    const char *name = command->words[1];
    struct gb_tls_names names = {0};
    struct files files;
    int rc = gb_tls_names_add_others(&names, &command->names, NULL, err);

    if (rc == 0 && names.count == 0)
        rc = gb_tls_names_add_host(&names, name, err);
    if (rc == 0)
        rc = name_files(&files, paths->servers, name, err);
    if (rc == 0) {
        const struct gb_tls_plan plan = {.role = GB_TLS_SERVER,
                                         .names = &names,
                                         .common_name = names.items[0].text,
                                         .now_s = gb_tls_now(),
                                         .days = command->days};

        rc = make_new(&files, paths->servers, "server", &plan, authority, stdout, err);
    }
    if (rc == 0)
        printf("\nThe daemon takes it beside another one:\n  --tls-cert %s --tls-key %s\n", files.certificate,
               files.key);
    gb_tls_names_done(&names);
    return rc;
}

int gb_tls_server(const struct gb_tls_command *command, struct gb_error *err) {
    struct gb_tls_pair *authority;
    struct gb_tls_paths paths;
    struct files files;
    int rc = -1;

    if (gb_tls_check_name("server's name", command->words[1], err) != 0 ||
        gb_tls_paths_init(&paths, command->dir, err) != 0)
        return -1;
    authority = load_authority(&paths, err);
    if (authority != NULL && !command->renew)
        rc = make_server(command, &paths, authority, err);
    else if (authority != NULL && name_files(&files, paths.servers, command->words[1], err) == 0)
        rc = make_again(command, GB_TLS_SERVER,
                        &(struct gb_tls_target){"server", files.certificate, files.key, "no name"}, authority, err);
    gb_tls_pair_free(authority);
    gb_tls_paths_done(&paths);
    return rc;
}

int gb_tls_client(const struct gb_tls_command *command, struct gb_error *err) {
    const char *name = command->words[1];
    struct gb_tls_pair *authority;
    struct gb_tls_paths paths;
    struct files files;
    int rc = -1;

    if (gb_tls_check_name("client's name", name, err) != 0 || gb_tls_paths_init(&paths, command->dir, err) != 0)
        return -1;
    authority = load_authority(&paths, err);
    if (authority != NULL && !command->renew)
        rc = gb_tls_make_client(&paths, authority, name, command->days, stdout, err);
    else if (authority != NULL && name_files(&files, paths.clients, name, err) == 0)
        rc = make_again(command, GB_TLS_CLIENT, &(struct gb_tls_target){"client", files.certificate, files.key, name},
                        authority, err);
    if (rc == 0)
        printf("\nThe client takes both files and a copy of %s:\n  gpubuf --url https://HOST:7443 --cacert ca.pem "
               "--cert %s.pem --key %s.key info\n\"gpubufd token add %s --subject CN=%s\" makes the certificate as "
               "good as "
               "a token.\n",
               paths.authority, name, name, name, name);
    gb_tls_pair_free(authority);
    gb_tls_paths_done(&paths);
    return rc;
}

int gb_tls_renew(const struct gb_tls_command *command, struct gb_error *err) {
    struct gb_tls_pair *authority;
    struct gb_tls_paths paths;
    int rc = -1;

    if (gb_tls_paths_init(&paths, command->dir, err) != 0)
        return -1;
    authority = load_authority(&paths, err);
    if (authority != NULL)
        rc = make_again(command, GB_TLS_SERVER,
                        &(struct gb_tls_target){"server", paths.server, paths.server_key, "no name"}, authority, err);
    gb_tls_pair_free(authority);
    gb_tls_paths_done(&paths);
    return rc;
}
