/* `gpubufd tls init`: an authority, and the server's certificate. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/digest.h"
#include "daemon/tls_cmd.h"
#include "tls/show.h"

static int prepare(const char *dir, const struct gb_tls_paths *paths, struct gb_error *err) {
    const char *const made[] = {paths->authority_key, paths->authority, paths->server_key, paths->server};
    size_t i;

    for (i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
        if (gb_tls_refuse_present(
                made[i], "\"gpubufd tls renew\" makes the server's certificate again, and --dir names another folder",
                err) != 0)
            return -1;
    }
    return gb_tls_make_folder(dir, 0755, err) == 0 ? gb_tls_make_folder(paths->authority_folder, 0700, err) : -1;
}

/* Two authorities of one name could not be told apart: a number is part of it. */
static struct gb_tls_pair *make_authority(const char *machine, struct gb_error *err) {
    struct gb_tls_plan plan = {.role = GB_TLS_AUTHORITY, .now_s = gb_tls_now(), .days = GB_TLS_DAYS_MAX};
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
static void say_next(const struct gb_tls_command *command, const struct gb_tls_paths *paths, const char *machine) {
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
    const struct gb_tls_plan plan = {.role = GB_TLS_SERVER,
                                     .names = names,
                                     .common_name = names->items[0].text,
                                     .now_s = gb_tls_now(),
                                     .days = command->days};
    const struct gb_tls_target server = {"server", paths->server, paths->server_key, "no name"};
    struct gb_tls_pair *authority = make_authority(names->items[0].text, err);
    char date[GB_TLS_DATE_SIZE];
    int rc = -1;

    if (authority != NULL)
        rc = gb_tls_pair_save(authority, paths->authority, paths->authority_key, err);
    if (rc == 0) {
        fprintf(out, "authority  %s\n           %s\n           until %s\n", paths->authority, paths->authority_key,
                gb_tls_date(gb_tls_pair_until(authority), date));
        rc = gb_tls_make(&server, &plan, authority, out, err);
        if (rc == 0 && command->client != NULL)
            rc = gb_tls_make_client(paths, authority, command->client, command->days, out, err);
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

/* With names of one's own the machine's come behind them: the certificate is good for both. */
int gb_tls_init(const struct gb_tls_command *command, struct gb_error *err) {
    struct gb_tls_names names = {0};
    struct gb_tls_paths paths;
    char *said = NULL; /* of what is made, once all of it is */
    size_t bytes;
    FILE *out;
    int rc = gb_tls_paths_init(&paths, command->dir, err);

    if (rc != 0)
        return -1;
    if (command->client != NULL)
        rc = gb_tls_check_name("client's name", command->client, err);
    if (rc == 0)
        rc = gb_tls_names_add_others(&names, &command->names, NULL, err);
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
        say_next(command, &paths, names.items[0].text);
    free(said);
    gb_tls_names_done(&names);
    gb_tls_paths_done(&paths);
    return rc;
}
