/* What `gpubufd tls` makes: an authority, the server's certificate, certificates of clients. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/name.h"
#include "daemon/tls_cmd.h"
#include "tls/show.h"

#define NAMES_TEXT 1024

static int64_t now_s(void) {
    return gb_wall_us() / 1000000;
}

/* --- folders ------------------------------------------------------------------------------------------------------ */

static int make_folder(const char *path, mode_t mode, struct gb_error *err) {
    if (mkdir(path, mode) == 0 || errno == EEXIST)
        return 0;
    return gb_error_set(err, GB_ERR_INTERNAL, "the folder %.200s cannot be made: %s", path, strerror(errno));
}

static int refuse_present(const char *path, const char *instead, struct gb_error *err) {
    if (access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s is there, and nothing is overwritten: %s", path, instead);
}

static int prepare(const char *dir, const struct gb_tls_paths *paths, struct gb_error *err) {
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

/* --- certificates ------------------------------------------------------------------------------------------------- */

/* Two authorities of one name could not be told apart: a number is part of it. */
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

static int make_client(const struct gb_tls_paths *paths, const struct gb_tls_pair *authority, const char *name,
                       uint32_t days, FILE *out, struct gb_error *err) {
    struct gb_tls_plan plan = {.role = GB_TLS_CLIENT, .common_name = name, .now_s = now_s(), .days = days};
    char certificate[PATH_MAX];
    char key[PATH_MAX];
    char date[GB_TLS_DATE_SIZE];
    struct gb_tls_pair *pair;
    int rc;

    snprintf(certificate, sizeof(certificate), "%s/%s.pem", paths->clients, name);
    snprintf(key, sizeof(key), "%s/%s.key", paths->clients, name);
    if (refuse_present(certificate, "give another NAME, or take its files away", err) != 0 ||
        refuse_present(key, "give another NAME, or take its files away", err) != 0 ||
        make_folder(paths->clients, 0700, err) != 0)
        return -1;
    pair = gb_tls_pair_make(&plan, authority, err);
    rc = pair != NULL ? gb_tls_pair_save(pair, certificate, key, err) : -1;
    if (rc == 0)
        fprintf(out, "client     %s\n           %s\n           for %s, until %s\n", certificate, key, name,
                gb_tls_date(gb_tls_pair_until(pair), date));
    gb_tls_pair_free(pair);
    return rc;
}

static int say_server(const struct gb_tls_paths *paths, int64_t until_s, FILE *out, struct gb_error *err) {
    char names[NAMES_TEXT];
    char date[GB_TLS_DATE_SIZE];

    if (gb_tls_names_text(paths->server, names, sizeof(names), err) != 0)
        return -1;
    fprintf(out, "server     %s\n           %s\n           for %s, until %s\n", paths->server, paths->server_key, names,
            gb_tls_date(until_s, date));
    return 0;
}

static int make_server(const struct gb_tls_paths *paths, const struct gb_tls_pair *authority,
                       const struct gb_tls_names *names, uint32_t days, FILE *out, struct gb_error *err) {
    struct gb_tls_plan plan = {.role = GB_TLS_SERVER, .names = names, .now_s = now_s(), .days = days};
    struct gb_tls_pair *pair;
    int rc;

    plan.common_name = names->items[0].text;
    pair = gb_tls_pair_make(&plan, authority, err);
    rc = pair != NULL ? gb_tls_pair_save(pair, paths->server, paths->server_key, err) : -1;
    if (rc == 0)
        rc = say_server(paths, gb_tls_pair_until(pair), out, err);
    gb_tls_pair_free(pair);
    return rc;
}

/* --- commands ----------------------------------------------------------------------------------------------------- */

static void say_next(const struct gb_tls_paths *paths, const char *machine, const char *name) {
    printf("\nThe daemon takes:\n  gpubufd --listen none --tls-listen 0.0.0.0:7443 --tls-cert %s --tls-key %s\n",
           paths->server, paths->server_key);
    printf("and, so that clients may show a certificate of this authority, also:\n  --tls-client-ca %s\n",
           paths->authority);
    printf("\nClients take a copy of %s:\n  gpubuf --url https://%s:7443 --cacert ca.pem info\n", paths->authority,
           machine);
    printf("  GPUBUF_URL=https://%s:7443 GPUBUF_CACERT=/path/to/ca.pem\n", machine);
    if (name != NULL)
        printf("and this one, of its own files: --cert %s.pem --key %s.key (GPUBUF_CERT, GPUBUF_KEY)\n", name, name);
    else
        printf("\"gpubufd tls client NAME\" makes a certificate for a client.\n");
    printf(
        "\nWith %s anyone can make certificates that these clients trust:\nthe daemon never reads it, and it is best "
        "moved to a place apart.\n",
        paths->authority_key);
}

/* All or nothing: what was made before a failure is taken away. */
static int init(const struct gb_tls_command *command, const struct gb_tls_paths *paths,
                const struct gb_tls_names *names, FILE *out, struct gb_error *err) {
    struct gb_tls_pair *authority = make_authority(names->items[0].text, err);
    char date[GB_TLS_DATE_SIZE];
    int rc = -1;

    if (authority != NULL)
        rc = gb_tls_pair_save(authority, paths->authority, paths->authority_key, err);
    if (rc == 0) {
        fprintf(out, "authority  %s\n           %s\n           until %s\n", paths->authority, paths->authority_key,
                gb_tls_date(gb_tls_pair_until(authority), date));
        rc = make_server(paths, authority, names, command->days, out, err);
        if (rc == 0 && command->client != NULL)
            rc = make_client(paths, authority, command->client, command->days, out, err);
        if (rc != 0) {
            unlink(paths->authority);
            unlink(paths->authority_key);
            unlink(paths->server);
            unlink(paths->server_key);
        }
    }
    gb_tls_pair_free(authority);
    return rc;
}

static int check_client(const char *name, struct gb_error *err) {
    struct gb_name parsed;

    return name != NULL ? gb_name_parse("client's name", name, strlen(name), &parsed, err) : 0;
}

/* With names of one's own the machine's come behind them: the certificate is good for both. */
int gb_tls_init(const struct gb_tls_command *command, struct gb_error *err) {
    struct gb_tls_names names = {0};
    struct gb_tls_paths paths;
    char *said = NULL; /* of what is made, once all of it is */
    size_t bytes;
    FILE *out;
    size_t i;
    int rc = gb_tls_paths_init(&paths, command->dir, err);

    if (rc != 0)
        return -1;
    rc = check_client(command->client, err);
    for (i = 0; i < command->names.count && rc == 0; i++) {
        const struct gb_tls_name *name = &command->names.items[i];

        rc = name->address_bytes > 0 ? gb_tls_names_add_address(&names, name->text, err)
                                     : gb_tls_names_add_host(&names, name->text, err);
    }
    if (rc == 0)
        rc = gb_tls_names_add_machine(&names, err);
    if (rc == 0)
        rc = prepare(command->dir, &paths, err);
    out = open_memstream(&said, &bytes);
    if (rc == 0 && out == NULL)
        rc = gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    if (rc == 0)
        rc = init(command, &paths, &names, out, err);
    if (out != NULL)
        fclose(out);
    if (rc == 0)
        fputs(said, stdout);
    if (rc == 0)
        say_next(&paths, names.items[0].text, command->client);
    free(said);
    gb_tls_names_done(&names);
    gb_tls_paths_done(&paths);
    return rc;
}

static struct gb_tls_pair *load_authority(const struct gb_tls_paths *paths, struct gb_error *err) {
    if (access(paths->authority, F_OK) != 0 && errno == ENOENT) {
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                     "there is no authority %.200s: \"gpubufd tls init\" makes one, and --dir names its folder",
                     paths->authority);
        return NULL;
    }
    return gb_tls_pair_load(paths->authority, paths->authority_key, err);
}

int gb_tls_client(const struct gb_tls_command *command, struct gb_error *err) {
    struct gb_tls_pair *authority;
    struct gb_tls_paths paths;
    int rc = -1;

    if (check_client(command->words[1], err) != 0 || gb_tls_paths_init(&paths, command->dir, err) != 0)
        return -1;
    authority = load_authority(&paths, err);
    if (authority != NULL)
        rc = make_client(&paths, authority, command->words[1], command->days, stdout, err);
    if (rc == 0)
        printf("\nThe client takes both files and a copy of %s:\n  gpubuf --url https://HOST:7443 --cacert ca.pem "
               "--cert %s.pem --key %s.key info\n",
               paths.authority, command->words[1], command->words[1]);
    gb_tls_pair_free(authority);
    gb_tls_paths_done(&paths);
    return rc;
}

int gb_tls_renew(const struct gb_tls_command *command, struct gb_error *err) {
    bool named = command->names.count > 0;
    struct gb_tls_plan plan = {.role = GB_TLS_SERVER,
                               .names = named ? &command->names : NULL,
                               .common_name = named ? command->names.items[0].text : NULL,
                               .now_s = now_s(),
                               .days = command->days};
    struct gb_tls_pair *authority;
    struct gb_tls_pair *old = NULL;
    struct gb_tls_pair *pair = NULL;
    struct gb_tls_paths paths;
    int rc = -1;

    if (gb_tls_paths_init(&paths, command->dir, err) != 0)
        return -1;
    authority = load_authority(&paths, err);
    if (authority != NULL)
        old = gb_tls_pair_load(paths.server, paths.server_key, err);
    if (old != NULL)
        pair = gb_tls_pair_renew(&plan, old, authority, err);
    if (pair != NULL)
        rc = gb_tls_pair_replace(pair, paths.server, err);
    if (rc == 0)
        rc = say_server(&paths, gb_tls_pair_until(pair), stdout, err);
    gb_tls_pair_free(pair);
    gb_tls_pair_free(old);
    gb_tls_pair_free(authority);
    gb_tls_paths_done(&paths);
    return rc;
}
