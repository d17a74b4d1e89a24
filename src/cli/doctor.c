/* doctor: check by check, why sharing or the GPU does not work here. */
#include "cli/doctor.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void gb_cli_doctor_add(struct gb_cli_doctor *doctor, const char *check, bool good, const char *remedy,
                       const char *detail, ...) {
    char text[1024];
    va_list args;

    va_start(args, detail);
    vsnprintf(text, sizeof text, detail, args);
    va_end(args);
    json_array_append_new(doctor->checks, json_pack("{s:s, s:b, s:s, s:o}", "check", check, "ok", good, "detail", text,
                                                    "remedy", good ? json_null() : json_string(remedy)));
    doctor->bad |= !good;
}

void gb_cli_doctor_skip(struct gb_cli_doctor *doctor, const char *check, const char *detail, ...) {
    char text[1024];
    va_list args;

    va_start(args, detail);
    vsnprintf(text, sizeof text, detail, args);
    va_end(args);
    json_array_append_new(doctor->checks,
                          json_pack("{s:s, s:n, s:s, s:n}", "check", check, "ok", "detail", text, "remedy"));
}

static void check_version(struct gb_cli_doctor *doctor) {
    const char *theirs = gb_cli_text(doctor->root, "version");

    gb_cli_doctor_add(doctor, "version", strcmp(theirs, GB_CLI_VERSION) == 0,
                      "install gpubuf and gpubufd of one version; what the older one lacks is refused",
                      "daemon %s, gpubuf %s", theirs, GB_CLI_VERSION);
}

static void check_ready(struct gb_cli_doctor *doctor) {
    json_t *answer = gb_cli_request(doctor->cli, "GET", "/readyz", NULL);

    gb_cli_doctor_add(doctor, "ready", answer != NULL, "curl its /readyz?verbose for the check that fails; see its log",
                      "%s", answer != NULL ? gb_cli_text(answer, "status") : doctor->cli->error.detail);
    json_decref(answer);
}

static void check_backend(struct gb_cli_doctor *doctor) {
    const char *name = gb_cli_text(doctor->root, "backend.name");
    const char *note = gb_cli_text(doctor->root, "backend.note");
    bool cuda = strcmp(name, "cuda") == 0;

    if (!cuda && (!doctor->here || !doctor->gpu))
        gb_cli_doctor_skip(doctor, "backend", "%s, which serves without a GPU: %s", name, note);
    else
        gb_cli_doctor_add(doctor, "backend", cuda,
                          "this machine has a GPU: start gpubufd with --backend cuda, which says what is missing, and "
                          "see the driver's checks",
                          "%s: %s", name, note);
}

/* What is switched off is a decision, not a fault. */
static void check_cage(struct gb_cli_doctor *doctor) {
    const char *seccomp = gb_cli_text(doctor->root, "cage.seccomp");
    const char *privileges = gb_cli_text(doctor->root, "cage.privileges");
    double landlock = gb_cli_number(doctor->root, "cage.landlock");
    bool dumps = json_is_true(json_object_get(json_object_get(doctor->root, "cage"), "core_dumps"));
    bool whole = landlock > 0 && strcmp(privileges, "none") == 0 && !dumps &&
                 (strcmp(seccomp, "errno") == 0 || strcmp(seccomp, "kill") == 0);
    char text[128];

    if (seccomp[0] == '\0') {
        gb_cli_doctor_skip(doctor, "cage", "this daemon tells nothing of one");
        return;
    }
    snprintf(text, sizeof text, "Landlock %.0f, seccomp %s, privileges %s, core dumps %s", landlock, seccomp,
             privileges, dumps ? "permitted" : "none");
    if (whole)
        gb_cli_doctor_add(doctor, "cage", true, "", "%s", text);
    else
        gb_cli_doctor_skip(doctor, "cage", "%s: parts are off (--landlock, --seccomp, --privileges, --core-dumps)",
                           text);
}

/* Behind a proxy, clients of other machines are taken for this one's. */
static void check_tokens(struct gb_cli_doctor *doctor) {
    json_t *access = json_object_get(doctor->root, "access");
    bool proxies = json_is_true(json_object_get(access, "proxies"));

    if (access == NULL)
        gb_cli_doctor_skip(doctor, "tokens", "this daemon does not tell");
    else if (json_is_true(json_object_get(access, "tokens")))
        gb_cli_doctor_add(doctor, "tokens", true, "", "requests need one");
    else if (!proxies)
        gb_cli_doctor_skip(doctor, "tokens", "none: all users of the daemon's machine may do everything");
    else
        gb_cli_doctor_add(
            doctor, "tokens", false,
            "make one with \"gpubufd token add NAME --scope write\", unless the proxy itself refuses clients",
            "none: all clients of its proxy may do everything");
}

static void check_kernel_tls(struct gb_cli_doctor *doctor) {
    const char *kernel = gb_cli_text(doctor->root, "kernel_tls");

    if (kernel[0] != '\0' && strncmp(gpubuf_url(doctor->cli->client), "https:", 6) == 0)
        gb_cli_doctor_skip(doctor, "kernel TLS", "%s", kernel);
}

static bool offers(json_t *device, const char *way) {
    json_t *found = json_object_get(json_object_get(device, "capabilities"), way);

    return json_is_true(json_object_get(found, "available"));
}

static const char *remedy_of_storage(const char *state) {
    if (strcmp(state, "full") == 0)
        return "make room on its disk, or lower --disk-reserve";
    if (strcmp(state, "unavailable") == 0)
        return "mount its disk; the daemon looks for it every second";
    return "see the kernel's log for errors of its disk; the daemon tries it again every second";
}

/* A folder that was switched off is a decision, and a token may not see it. */
static void check_storage(struct gb_cli_doctor *doctor) {
    json_t *storage = gb_cli_request(doctor->cli, "GET", "/v1/storage", NULL);
    const char *state = gb_cli_text(storage, "state");
    const char *dir = gb_cli_text(storage, "dir");
    char room[24];

    gb_cli_bytes_text((uint64_t)gb_cli_number(storage, "free_bytes"), room);
    if (storage == NULL)
        gb_cli_doctor_skip(doctor, "data folder", "%s", doctor->cli->error.detail);
    else if (strcmp(state, "none") == 0)
        gb_cli_doctor_skip(doctor, "data folder", "none: no buffer can be durable (--data-dir)");
    else if (strcmp(state, "ready") == 0)
        gb_cli_doctor_add(doctor, "data folder", true, "", "%s, %s free", dir, room);
    else
        gb_cli_doctor_add(doctor, "data folder", false, remedy_of_storage(state), "%s, %s free, is in state %s: %s",
                          dir, room, state, gb_cli_text(storage, "error"));
    json_decref(storage);
}

/* Each way by which a device's memory could be shared: one is enough, and host memory needs none of them. */
static void check_device(struct gb_cli_doctor *doctor, json_t *device) {
    static const char *const ways[] = {"vmm_export_fd", "pool_export_fd", "legacy_ipc"};
    bool cuda = strcmp(gb_cli_text(doctor->root, "backend.name"), "cuda") == 0;
    bool any = offers(device, ways[0]) || offers(device, ways[1]) || offers(device, ways[2]);
    char check[64];
    size_t i;

    for (i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        json_t *found = json_object_get(json_object_get(device, "capabilities"), ways[i]);
        const char *name = gb_cli_text(device, "name");

        snprintf(check, sizeof check, "device %.0f %s", gb_cli_number(device, "index"), ways[i]);
        if (offers(device, ways[i]))
            gb_cli_doctor_add(doctor, check, true, "", "%s", name);
        else if (any || !cuda)
            gb_cli_doctor_skip(doctor, check, "%s: %s", name, gb_cli_text(found, "reason"));
        else
            gb_cli_doctor_add(doctor, check, false,
                              "share host memory (--kind pinned or pageable) or transfer by requests instead", "%s: %s",
                              name, gb_cli_text(found, "reason"));
    }
}

/* A device without a health reading is no fault. */
static void check_health(struct gb_cli_doctor *doctor, json_t *device) {
    const char *source = gb_cli_text(device, "health.source");
    const char *why = gb_cli_text(device, "health.reason");
    char check[64];

    snprintf(check, sizeof check, "device %.0f health", gb_cli_number(device, "index"));
    if (source[0] == '\0' || strcmp(source, "none") == 0)
        gb_cli_doctor_skip(doctor, check, "%s", *why != '\0' ? why : "not known");
    else
        gb_cli_doctor_add(doctor, check, true, "", "read from %s", source);
}

static void check_devices(struct gb_cli_doctor *doctor) {
    json_t *devices = gb_cli_items(doctor->cli, "/v1/devices");
    json_t *device;
    size_t i;

    if (devices == NULL)
        gb_cli_doctor_add(doctor, "devices", false, "see the daemon's log", "%s", doctor->cli->error.detail);
    json_array_foreach(devices, i, device) {
        check_device(doctor, device);
        check_health(doctor, device);
    }
    json_decref(devices);
}

/* A daemon that is in no fleet has no such check. */
static void check_fleet(struct gb_cli_doctor *doctor) {
    json_t *fleet = gb_cli_request(doctor->cli, "GET", "/v1/fleet", NULL);
    const char *state = gb_cli_text(fleet, "state");
    const char *why = gb_cli_text(fleet, "why");
    bool joined = strcmp(state, "joined") == 0;

    if (state[0] != '\0' && strcmp(state, "none") != 0)
        gb_cli_doctor_add(
            doctor, "fleet", joined,
            strcmp(state, "duplicate") == 0
                ? "start one of the two with another --fleet-node and a state directory of its own"
                : "its sessions are served all the same; see that etcd answers at the addresses of --fleet",
            "node %s of %s is %s%s%s", gb_cli_text(fleet, "node"), gb_cli_text(fleet, "fleet"), state,
            why[0] != '\0' ? ": " : "", why);
    json_decref(fleet);
}

static void show_text(json_t *checks) {
    json_t *check;
    size_t i;

    json_array_foreach(checks, i, check) {
        json_t *ok = json_object_get(check, "ok");

        printf("%s  %-26s ", json_is_true(ok) ? "ok" : json_is_null(ok) ? "--" : "no", gb_cli_text(check, "check"));
        gb_cli_put(stdout, gb_cli_text(check, "detail"));
        printf("\n");
        if (json_is_false(ok))
            printf("    %-26s -> %s\n", "", gb_cli_text(check, "remedy"));
    }
}

static bool given(const char *option, const char *name) {
    const char *value = option != NULL ? option : getenv(name);

    return value != NULL && value[0] != '\0';
}

int gb_cli_run_doctor(struct gb_cli *cli, int argc, char **argv) {
    struct gb_cli_doctor doctor = {.cli = cli, .checks = json_array()};

    (void)argc;
    (void)argv;
    doctor.here = gb_cli_doctor_is_here(gpubuf_url(cli->client));
    doctor.named = given(cli->options.url, "GPUBUF_URL");
    doctor.socket_named = given(cli->options.socket, "GPUBUF_SOCKET");
    doctor.gpu = gb_cli_doctor_has_gpu();
    gb_cli_doctor_reach(&doctor);
    if (doctor.root != NULL) {
        check_version(&doctor);
        check_ready(&doctor);
        check_backend(&doctor);
        check_cage(&doctor);
        check_tokens(&doctor);
        check_kernel_tls(&doctor);
        check_storage(&doctor);
        check_fleet(&doctor);
        check_devices(&doctor);
    }
    gb_cli_doctor_driver(&doctor);
    gb_cli_doctor_sharing(&doctor);
    if (cli->options.json)
        gb_cli_json(stdout, doctor.checks);
    else
        show_text(doctor.checks);
    json_decref(doctor.checks);
    json_decref(doctor.root);
    if (atomic_load(&cli->interrupted))
        return GB_CLI_INTERRUPTED;
    return doctor.bad ? GB_CLI_FAILED : GB_CLI_DONE;
}
