/* The road to shared memory: socket, permission, a mapping that is compared. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/doctor.h"

#define PROBE_BYTES 65536
#define ANOTHER "name this daemon's socket with --socket, or the socket as --url"

static bool check_socket(struct gb_cli_doctor *doctor, const char *path) {
    struct stat info;
    bool there;
    bool may;

    if (!doctor->here) {
        gb_cli_doctor_skip(doctor, "UNIX socket",
                           "%s is another machine, and memory is shared within one: from here bytes go by requests",
                           gpubuf_url(doctor->cli->client));
        return false;
    }
    if (path == NULL && doctor->named) {
        gb_cli_doctor_skip(doctor, "UNIX socket",
                           "none is where gpubufd puts it by default, so that sharing was not looked at: name it with "
                           "--socket PATH or GPUBUF_SOCKET");
        return false;
    }
    if (path == NULL) {
        gb_cli_doctor_add(
            doctor, "UNIX socket", false,
            "name it with --socket PATH or GPUBUF_SOCKET (gpubufd --socket, by default gpubufd.sock in its state "
            "directory)",
            "none is where gpubufd puts it by default");
        return false;
    }
    there = stat(path, &info) == 0;
    gb_cli_doctor_add(
        doctor, "UNIX socket", there && S_ISSOCK(info.st_mode),
        "start gpubufd with --socket PATH, share its folder with this container, or name it with --socket", "%s: %s",
        path,
        !there                   ? strerror(errno)
        : S_ISSOCK(info.st_mode) ? "there"
                                 : "is no socket");
    if (!there || !S_ISSOCK(info.st_mode))
        return false;
    may = access(path, W_OK) == 0;
    gb_cli_doctor_add(
        doctor, "socket's permissions", may,
        "let this user's group write to the socket (gpubufd --socket-group, --socket-mode) and search its "
        "folder, or run as the daemon's user",
        "mode %03o of user %u and group %u, we are user %u: %s", info.st_mode & 0777, info.st_uid, info.st_gid,
        (unsigned)geteuid(), may ? "we may connect" : strerror(errno));
    return may;
}

/* Whether the socket is that of the daemon that the URL leads to. */
static bool check_same(struct gb_cli_doctor *doctor, gpubuf_client *client) {
    struct gb_cli *cli = doctor->cli;
    gpubuf_client *before = cli->client;
    json_t *root;
    bool good;

    cli->client = client;
    root = gb_cli_request(cli, "GET", "/v1", NULL);
    cli->client = before;
    if (root == NULL && cli->error.code == GPUBUF_FORBIDDEN) {
        gb_cli_doctor_add(doctor, "socket's daemon", false, GB_CLI_SCOPE_REMEDY, "%s", cli->error.detail);
        return false;
    }
    good = root != NULL && (doctor->root == NULL ||
                            strcmp(gb_cli_text(root, "started_at"), gb_cli_text(doctor->root, "started_at")) == 0);
    if (!good && doctor->named && !doctor->socket_named)
        gb_cli_doctor_skip(
            doctor, "socket's daemon",
            "%s is not known to be of the daemon at the URL, so that sharing was not looked at: name its "
            "own with --socket PATH or GPUBUF_SOCKET",
            gpubuf_socket(before));
    else
        gb_cli_doctor_add(doctor, "socket's daemon", good,
                          root == NULL ? gb_cli_doctor_remedy(doctor, ANOTHER) : ANOTHER, "%s",
                          root == NULL ? cli->error.detail
                          : good       ? "answers, and is the one of the URL"
                                       : "another daemon answers there than at the URL");
    json_decref(root);
    return good;
}

static void look_at_mapping(struct gb_cli_doctor *doctor, gpubuf_client *client, const char *name, const void *bytes) {
    struct gpubuf_error *err = &doctor->cli->error;
    struct gpubuf_map_params params = {.ways = GPUBUF_WAY_MEMFD};
    gpubuf_mapping *mapping = NULL;
    const struct gpubuf_mapping_info *info;
    int rc = gpubuf_map(client, doctor->cli->session, name, &params, &mapping, err);
    bool may = rc == 0 || (err->code != GPUBUF_MAP_NOT_PERMITTED && err->code != GPUBUF_FORBIDDEN);

    gb_cli_doctor_add(
        doctor, "right to map", may,
        err->code == GPUBUF_FORBIDDEN ? "give a token of the scope map (\"gpubufd token add NAME --scope map,write\"): "
                                        "while tokens are in force they alone decide"
                                      : "start gpubufd with --map-uids or --map-gids for this user",
        "user %u, group %u: %s", (unsigned)geteuid(), (unsigned)getegid(), may ? "not refused" : err->detail);
    if (!may)
        return;
    if (rc < 0) {
        gb_cli_doctor_add(doctor, "memfd", false, "see what the daemon's log says of it; requests go on working", "%s",
                          err->detail);
        return;
    }
    info = gpubuf_mapping_info_of(mapping);
    gb_cli_doctor_add(
        doctor, "memfd",
        info->memory != NULL && info->bytes == PROBE_BYTES && memcmp(info->memory, bytes, PROBE_BYTES) == 0,
        "this is a defect: please report it with both versions", "%d bytes mapped and compared", PROBE_BYTES);
    (void)gpubuf_unmap(mapping, NULL);
}

static void check_mapping(struct gb_cli_doctor *doctor, gpubuf_client *client) {
    struct gpubuf_put_params put = {.format = "raw", .kind = "pageable"};
    unsigned char bytes[PROBE_BYTES];
    char target[GB_CLI_PATH];
    char name[64];
    size_t i;

    for (i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 31 + i / 251);
    snprintf(name, sizeof name, "gpubuf-doctor-%d", (int)getpid());
    if (gpubuf_put(client, doctor->cli->session, name, gpubuf_from_memory(bytes, sizeof bytes), &put, NULL,
                   &doctor->cli->error) < 0) {
        gb_cli_doctor_add(doctor, "memfd", false,
                          doctor->cli->error.code == GPUBUF_FORBIDDEN
                              ? "doctor uploads a buffer of its own: give a token of the scopes map and write that "
                                "reaches the session (--session) and has no prefix"
                              : gb_cli_doctor_remedy(doctor, "room in the session for 64 KiB is needed"),
                          "%s: %s", name, doctor->cli->error.detail);
        return;
    }
    look_at_mapping(doctor, client, name, bytes);
    gpubuf_resume(client);
    if (gb_cli_target(doctor->cli, target, "/v1/sessions/{}/buffers/{}", doctor->cli->session, name) == 0)
        (void)gpubuf_request(client, "DELETE", target, NULL, NULL, 0, &doctor->cli->error);
}

void gb_cli_doctor_sharing(struct gb_cli_doctor *doctor) {
    const char *path = gpubuf_socket(doctor->cli->client);
    gpubuf_client *client = NULL;
    char url[256];

    if (!check_socket(doctor, path))
        return;
    snprintf(url, sizeof url, "unix://%s", path);
    if (gb_cli_open(doctor->cli, url, NULL, &client) < 0)
        gb_cli_doctor_add(doctor, "socket's daemon", false, gb_cli_doctor_remedy(doctor, ANOTHER), "%s",
                          doctor->cli->error.detail);
    else if (check_same(doctor, client))
        check_mapping(doctor, client);
    gpubuf_close(client);
}
