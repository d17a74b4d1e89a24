/* doctor: check by check, why sharing or the GPU does not work here; and selftest: what copies cost on the daemon's
 * machine. A check is a name, whether it is good, what was found and a remedy. Those that another one makes pointless
 * are skipped with that reason. It fails if one check does. */
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

#define KERNEL_FILE "/proc/driver/nvidia/version"
#define NVIDIA 0x10de /* as a vendor on the PCI bus */
#define DISPLAY 0x03  /* the class of its devices that draw or calculate */
#define DAY_S 86400
#define DAYS_LEAST 14 /* of a certificate: less is said to be renewed */
#define HOST_SIZE 256
#define PROBE_BYTES 65536
#define ANOTHER_SOCKET "name this daemon's socket with --socket, or the socket as --url"
#define WAIT_S 60 /* the longest a request waits, and about the longest a selftest takes */

/* Of a token that is in force, and may not see the daemon as a whole. */
#define SCOPE_REMEDY                                                                                                   \
    "these checks need a token of the scope read that is of no one session and has no prefix (\"gpubufd token list\" " \
    "shows what each may)"

struct doctor {
    struct gb_cli *cli;
    json_t *checks;
    bool bad;     /* some check said no */
    bool reached; /* the daemon answers */
    bool here;    /* the daemon is on this machine */
    bool gpu;     /* there are signs of a GPU of NVIDIA on this machine */
    bool named;   /* the URL was given, by an option or the environment */
    bool socket_named;
    bool examined; /* peer has been filled */
    struct gpubuf_peer peer;
    json_t *root;     /* GET /v1, or NULL */
    char remedy[256]; /* of the last error */
};

/* --- checks ------------------------------------------------------------------------------------------------------- */

/* Adds a check. detail: what is; remedy: what to do about it, used when not good. */
static void __attribute__((format(printf, 5, 6)))
add_check(struct doctor *doctor, const char *check, bool good, const char *remedy, const char *detail, ...) {
    char text[1024];
    va_list args;

    va_start(args, detail);
    vsnprintf(text, sizeof(text), detail, args);
    va_end(args);
    json_array_append_new(doctor->checks, json_pack("{s:s, s:b, s:s, s:o}", "check", check, "ok", good, "detail", text,
                                                    "remedy", good ? json_null() : json_string(remedy)));
    doctor->bad |= !good;
}

/* Adds a check that does not apply here, with the reason: it is no failure. */
static void __attribute__((format(printf, 3, 4)))
skip_check(struct doctor *doctor, const char *check, const char *detail, ...) {
    char text[1024];
    va_list args;

    va_start(args, detail);
    vsnprintf(text, sizeof(text), detail, args);
    va_end(args);
    json_array_append_new(doctor->checks,
                          json_pack("{s:s, s:n, s:s, s:n}", "check", check, "ok", "detail", text, "remedy"));
}

/* --- the GPU's driver on this machine, examined without CUDA at link time ---------------------------------------- */

/* What the PCI bus says of one of its devices: a number in a file. */
static unsigned long pci_number(const char *device, const char *file) {
    char path[320];
    char text[32] = "";
    FILE *in;

    snprintf(path, sizeof(path), "%s/%s", device, file);
    in = fopen(path, "re");
    if (!in)
        return 0;
    if (!fgets(text, sizeof(text), in))
        text[0] = '\0';
    fclose(in);
    return strtoul(text, NULL, 16);
}

static bool on_the_bus(void) {
    glob_t found = {0};
    bool gpu = false;
    size_t i;

    if (glob("/sys/bus/pci/devices/*", 0, NULL, &found) == 0)
        for (i = 0; i < found.gl_pathc && !gpu; i++)
            gpu = pci_number(found.gl_pathv[i], "vendor") == NVIDIA &&
                  pci_number(found.gl_pathv[i], "class") >> 16 == DISPLAY;
    globfree(&found);
    return gpu;
}

/* Whether there is a GPU of NVIDIA, with a driver or without: what its driver shows, or what is on the PCI bus. */
static bool has_gpu(void) {
    static const char *const signs[] = {KERNEL_FILE, "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvhost-gpu"};
    size_t i;

    for (i = 0; i < sizeof(signs) / sizeof(signs[0]); i++)
        if (access(signs[i], F_OK) == 0)
            return true;
    return on_the_bus();
}

static void check_kernel(struct doctor *doctor) {
    bool good = access(KERNEL_FILE, R_OK) == 0;

    add_check(doctor, "kernel driver", good,
              "install NVIDIA's kernel driver; a Jetson has another one, and needs none of this file", "%s: %s",
              KERNEL_FILE, good ? "there" : strerror(errno));
}

static void check_nodes(struct doctor *doctor) {
    static const char *const nodes[] = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"};
    char detail[256] = "";
    size_t at = 0;
    size_t i;

    for (i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
        if (access(nodes[i], R_OK | W_OK) != 0)
            at += (size_t)snprintf(detail + at, sizeof(detail) - at, "%s%s: %s", at > 0 ? "; " : "", nodes[i],
                                   strerror(errno));
    add_check(doctor, "device files", detail[0] == '\0',
              "load the driver (nvidia-modprobe -u -c 0), give the container its devices, or this user the right to "
              "them; on a machine where the first GPU has another number this is no fault",
              "%s", detail[0] == '\0' ? "may be read and written" : detail);
}

static void check_library(struct doctor *doctor) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*init)(unsigned) = NULL;
    int (*count)(int *) = NULL;
    int devices = 0;
    int r;

    if (!library) {
        add_check(doctor, "libcuda", false,
                  "install the driver's user-space library, or give it to the container (the NVIDIA container toolkit)",
                  "%s", dlerror());
        return;
    }
    *(void **)&init = dlsym(library, "cuInit");
    *(void **)&count = dlsym(library, "cuDeviceGetCount");
    r = init && count ? init(0) : -1;
    if (r == 0)
        r = count(&devices);
    add_check(doctor, "libcuda", r == 0 && devices > 0,
              "the library's version must fit the kernel driver's, and CUDA_VISIBLE_DEVICES must leave a device",
              "libcuda.so.1: CUDA says %d, %d devices", r, devices);
    dlclose(library);
}

/* The GPU's driver on this machine: files, library, devices. */
static void check_driver(struct doctor *doctor) {
    static const char *const checks[] = {"kernel driver", "device files", "libcuda"};
    size_t i;

    if (!doctor->gpu) {
        for (i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
            skip_check(doctor, checks[i], "no GPU of NVIDIA is to be seen on this machine");
        return;
    }
    check_kernel(doctor);
    check_nodes(doctor);
    check_library(doctor);
}

/* --- the road to the daemon: where it is -------------------------------------------------------------------------- */

/* The host of a URL, without brackets. */
static void host_of(const char *url, char *ret, size_t size) {
    const char *at = strstr(url, "://");
    size_t n;

    at = at ? at + 3 : url;
    n = at[0] == '[' ? strcspn(++at, "]") : strcspn(at, ":/");
    snprintf(ret, size, "%.*s", (int)n, at);
}

static bool same_address(const struct sockaddr *a, const struct sockaddr *b) {
    if (!a || !b || a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return memcmp(&((const struct sockaddr_in *)a)->sin_addr, &((const struct sockaddr_in *)b)->sin_addr,
                      sizeof(struct in_addr)) == 0;
    return a->sa_family == AF_INET6 &&
           memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr, &((const struct sockaddr_in6 *)b)->sin6_addr,
                  sizeof(struct in6_addr)) == 0;
}

/* A loopback address, or one of an interface. */
static bool is_own(const struct sockaddr *address, const struct ifaddrs *interfaces) {
    const struct ifaddrs *at;

    if (address->sa_family == AF_INET &&
        ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET)
        return true;
    for (at = interfaces; at; at = at->ifa_next)
        if (same_address(at->ifa_addr, address))
            return true;
    return false;
}

bool gb_cli_doctor_is_here(const char *url) {
    const struct addrinfo how = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct ifaddrs *interfaces = NULL;
    struct addrinfo *found = NULL;
    char host[HOST_SIZE];
    bool here;

    if (strncmp(url, "unix:", 5) == 0)
        return true;
    host_of(url, host, sizeof(host));
    if (getaddrinfo(host, NULL, &how, &found) != 0)
        return strcasecmp(host, "localhost") == 0;
    if (getifaddrs(&interfaces) < 0)
        interfaces = NULL;
    here = is_own(found->ai_addr, interfaces);
    freeifaddrs(interfaces);
    freeaddrinfo(found);
    return here;
}

/* --- remedies ----------------------------------------------------------------------------------------------------- */

#define START                                                                                                          \
    "start gpubufd, or name where it is with --url or GPUBUF_URL (the file listen in its state directory has its "     \
    "addresses)"
#define ANOTHER "name the address of a gpubufd with --url or GPUBUF_URL"
#define TRUST "see the checks of the certificate"
#define OWN_CERTIFICATE                                                                                                \
    "give a client's certificate that is accepted, with --cert FILE and --key FILE (\"gpubufd tls client NAME\" "      \
    "makes "                                                                                                           \
    "one)"

/* The sentence of hints.def as the other remedies stand. */
static const char *hint(struct doctor *doctor, const char *otherwise) {
    const char *text = gb_cli_hint(doctor->cli);
    size_t n;

    if (!text)
        return otherwise;
    snprintf(doctor->remedy, sizeof(doctor->remedy), "%c%s", tolower((unsigned char)text[0]), text + 1);
    n = strlen(doctor->remedy);
    if (n > 0 && doctor->remedy[n - 1] == '.')
        doctor->remedy[n - 1] = '\0';
    return doctor->remedy;
}

static bool is_https(const struct doctor *doctor) {
    return strncmp(gpubuf_url(doctor->cli->client), "https:", 6) == 0;
}

/* What was found says what is wrong. */
static const char *remedy_of_tls(const struct doctor *doctor) {
    if (!is_https(doctor))
        return "name it with https://";
    if (!doctor->examined)
        return "name it with http:// if it is to have no TLS, or start it with --tls-listen";
    return doctor->peer.trusted ? OWN_CERTIFICATE : TRUST;
}

/* What to do about cli->error; otherwise, where nothing is known. Valid until the next call. */
static const char *remedy_of(struct doctor *doctor, const char *otherwise) {
    switch (doctor->cli->error.code) {
    case GPUBUF_CANNOT_CONNECT:
        return START;
    case GPUBUF_TLS_FAILED:
        return remedy_of_tls(doctor);
    case GPUBUF_CONNECTION_LOST:
    case GPUBUF_CLIENT_TIMEOUT:
        return "see the log of what listens there, or " ANOTHER;
    case GPUBUF_BAD_ANSWER:
        return ANOTHER;
    default:
        return hint(doctor, otherwise);
    }
}

/* --- the road to the daemon: checks ------------------------------------------------------------------------------- */

static const char *remedy_of_trust(const struct gpubuf_peer *peer) {
    if (!peer->issuer_known)
        return "trust its authority, with --cacert FILE or GPUBUF_CACERT (ca.pem of \"gpubufd tls init\")";
    if (!peer->names_host)
        return "ask by one of its names";
    return "see gpubufd(8) on \"gpubufd tls\"";
}

static void check_certificate(struct doctor *doctor) {
    const struct gpubuf_peer *peer = &doctor->peer;
    long long days = (long long)((peer->left_s + (peer->left_s < 0 ? -DAY_S : DAY_S) / 2) / DAY_S);
    bool expired = peer->left_s < 0;
    char host[HOST_SIZE];

    host_of(gpubuf_url(doctor->cli->client), host, sizeof(host));
    add_check(doctor, "certificate", peer->trusted,
              expired ? "\"gpubufd tls renew\" makes it again with the same key" : remedy_of_trust(peer),
              peer->trusted ? "%s, issued by %s" : "%s, issued by %s: it %s", peer->subject, peer->issuer, peer->why);
    add_check(doctor, "certificate's names", peer->names_host,
              "ask by one of its names, or let \"gpubufd tls renew --name NAME\" (--ip for an address) add one",
              peer->names_host ? "%s" : "%s: %s is not among them", peer->names, host);
    add_check(doctor, "certificate's end", !expired && days >= DAYS_LEAST,
              "\"gpubufd tls renew\" makes it again with the same key",
              expired ? "%.10s, which was %lld days ago" : "%.10s, %lld days left", peer->not_after,
              expired ? -days : days);
}

static void check_tls(struct doctor *doctor) {
    struct gb_cli *cli = doctor->cli;
    const struct gpubuf_peer *peer = &doctor->peer;

    if (!is_https(doctor))
        return;
    if (gpubuf_peer_get(cli->client, &doctor->peer, &cli->error) < 0) {
        if (cli->error.code == GPUBUF_CANNOT_CONNECT) /* which the next check says */
            return;
        add_check(doctor, "TLS", false, remedy_of(doctor, ANOTHER), "%s", cli->error.detail);
        return;
    }
    doctor->examined = true;
    add_check(doctor, "TLS", true, "", "%s, %s%s", peer->protocol, peer->cipher,
              peer->wants_certificate ? ", and the daemon asks for a client's certificate" : "");
    check_certificate(doctor);
}

/* The detail of most errors begins with the URL. */
static void check_answer(struct doctor *doctor) {
    struct gb_cli *cli = doctor->cli;
    const char *url = gpubuf_url(cli->client);
    json_t *answer = gb_cli_request(cli, "GET", "/livez", NULL);

    doctor->reached = answer != NULL;
    json_decref(answer);
    if (doctor->reached)
        add_check(doctor, "daemon", true, "", "%s answers within %.1f ms", url, gpubuf_answer_of(cli->client)->took_ms);
    else if (strstr(cli->error.detail, url))
        add_check(doctor, "daemon", false, remedy_of(doctor, ANOTHER), "%s", cli->error.detail);
    else
        add_check(doctor, "daemon", false, remedy_of(doctor, ANOTHER), "%s: %s", url, cli->error.detail);
}

static void check_access(struct doctor *doctor) {
    doctor->root = gb_cli_request(doctor->cli, "GET", "/v1", NULL);
    if (doctor->root)
        add_check(doctor, "access", true, "", "the daemon lets us in");
    else if (doctor->cli->error.code == GPUBUF_FORBIDDEN)
        add_check(doctor, "access", false, SCOPE_REMEDY, "the token is in force, but: %s", doctor->cli->error.detail);
    else
        add_check(doctor, "access", false, remedy_of(doctor, ANOTHER), "%s", doctor->cli->error.detail);
}

/* TLS, an answer, access. */
static void check_reach(struct doctor *doctor) {
    check_tls(doctor);
    check_answer(doctor);
    if (doctor->reached)
        check_access(doctor);
}

/* --- the road to shared memory: socket, permission, a mapping that is compared ------------------------------------ */

static bool check_socket(struct doctor *doctor, const char *path) {
    struct stat info;
    bool there;
    bool may;

    if (!doctor->here) {
        skip_check(doctor, "UNIX socket",
                   "%s is another machine, and memory is shared within one: from here bytes go by requests",
                   gpubuf_url(doctor->cli->client));
        return false;
    }
    if (!path && doctor->named) {
        skip_check(doctor, "UNIX socket",
                   "none is where gpubufd puts it by default, so that sharing was not looked at: name it with "
                   "--socket PATH or GPUBUF_SOCKET");
        return false;
    }
    if (!path) {
        add_check(doctor, "UNIX socket", false,
                  "name it with --socket PATH or GPUBUF_SOCKET (gpubufd --socket, by default gpubufd.sock in its state "
                  "directory)",
                  "none is where gpubufd puts it by default");
        return false;
    }
    there = stat(path, &info) == 0;
    add_check(doctor, "UNIX socket", there && S_ISSOCK(info.st_mode),
              "start gpubufd with --socket PATH, share its folder with this container, or name it with --socket",
              "%s: %s", path,
              !there                   ? strerror(errno)
              : S_ISSOCK(info.st_mode) ? "there"
                                       : "is no socket");
    if (!there || !S_ISSOCK(info.st_mode))
        return false;
    may = access(path, W_OK) == 0;
    add_check(doctor, "socket's permissions", may,
              "let this user's group write to the socket (gpubufd --socket-group, --socket-mode) and search its "
              "folder, or run as the daemon's user",
              "mode %03o of user %u and group %u, we are user %u: %s", info.st_mode & 0777, info.st_uid, info.st_gid,
              (unsigned)geteuid(), may ? "we may connect" : strerror(errno));
    return may;
}

/* Whether the socket is that of the daemon that the URL leads to. */
static bool check_same(struct doctor *doctor, gpubuf_client *client) {
    struct gb_cli *cli = doctor->cli;
    gpubuf_client *before = cli->client;
    json_t *root;
    bool good;

    cli->client = client;
    root = gb_cli_request(cli, "GET", "/v1", NULL);
    cli->client = before;
    if (!root && cli->error.code == GPUBUF_FORBIDDEN) {
        add_check(doctor, "socket's daemon", false, SCOPE_REMEDY, "%s", cli->error.detail);
        return false;
    }
    good = root &&
           (!doctor->root || strcmp(gb_cli_text(root, "started_at"), gb_cli_text(doctor->root, "started_at")) == 0);
    if (!good && doctor->named && !doctor->socket_named)
        skip_check(doctor, "socket's daemon",
                   "%s is not known to be of the daemon at the URL, so that sharing was not looked at: name its "
                   "own with --socket PATH or GPUBUF_SOCKET",
                   gpubuf_socket(before));
    else
        add_check(doctor, "socket's daemon", good, !root ? remedy_of(doctor, ANOTHER_SOCKET) : ANOTHER_SOCKET, "%s",
                  !root  ? cli->error.detail
                  : good ? "answers, and is the one of the URL"
                         : "another daemon answers there than at the URL");
    json_decref(root);
    return good;
}

static void look_at_mapping(struct doctor *doctor, gpubuf_client *client, const char *name, const void *bytes) {
    struct gpubuf_error *err = &doctor->cli->error;
    struct gpubuf_map_params params = {.ways = GPUBUF_WAY_MEMFD};
    gpubuf_mapping *mapping = NULL;
    const struct gpubuf_mapping_info *info;
    int r = gpubuf_map(client, doctor->cli->session, name, &params, &mapping, err);
    bool may = r == 0 || (err->code != GPUBUF_MAP_NOT_PERMITTED && err->code != GPUBUF_FORBIDDEN);

    add_check(doctor, "right to map", may,
              err->code == GPUBUF_FORBIDDEN
                  ? "give a token of the scope map (\"gpubufd token add NAME --scope map,write\"): "
                    "while tokens are in force they alone decide"
                  : "start gpubufd with --map-uids or --map-gids for this user",
              "user %u, group %u: %s", (unsigned)geteuid(), (unsigned)getegid(), may ? "not refused" : err->detail);
    if (!may)
        return;
    if (r < 0) {
        add_check(doctor, "memfd", false, "see what the daemon's log says of it; requests go on working", "%s",
                  err->detail);
        return;
    }
    info = gpubuf_mapping_info_of(mapping);
    add_check(doctor, "memfd",
              info->memory && info->bytes == PROBE_BYTES && memcmp(info->memory, bytes, PROBE_BYTES) == 0,
              "this is a defect: please report it with both versions", "%d bytes mapped and compared", PROBE_BYTES);
    (void)gpubuf_unmap(mapping, NULL);
}

static void check_mapping(struct doctor *doctor, gpubuf_client *client) {
    struct gpubuf_put_params put = {.format = "raw", .kind = "pageable"};
    unsigned char bytes[PROBE_BYTES];
    char target[GB_CLI_PATH];
    char name[64];
    size_t i;

    for (i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 31 + i / 251);
    snprintf(name, sizeof(name), "gpubuf-doctor-%d", (int)getpid());
    if (gpubuf_put(client, doctor->cli->session, name, gpubuf_from_memory(bytes, sizeof(bytes)), &put, NULL,
                   &doctor->cli->error) < 0) {
        add_check(doctor, "memfd", false,
                  doctor->cli->error.code == GPUBUF_FORBIDDEN
                      ? "doctor uploads a buffer of its own: give a token of the scopes map and write that "
                        "reaches the session (--session) and has no prefix"
                      : remedy_of(doctor, "room in the session for 64 KiB is needed"),
                  "%s: %s", name, doctor->cli->error.detail);
        return;
    }
    look_at_mapping(doctor, client, name, bytes);
    gpubuf_resume(client);
    if (gb_cli_target(doctor->cli, target, "/v1/sessions/{}/buffers/{}", doctor->cli->session, name) == 0)
        (void)gpubuf_request(client, "DELETE", target, NULL, NULL, 0, &doctor->cli->error);
}

/* The road to shared memory: UNIX socket, permission, a mapping. */
static void check_sharing(struct doctor *doctor) {
    const char *path = gpubuf_socket(doctor->cli->client);
    gpubuf_client *client = NULL;
    char url[256];

    if (!check_socket(doctor, path))
        return;
    snprintf(url, sizeof(url), "unix://%s", path);
    if (gb_cli_open(doctor->cli, url, NULL, &client) < 0)
        add_check(doctor, "socket's daemon", false, remedy_of(doctor, ANOTHER_SOCKET), "%s", doctor->cli->error.detail);
    else if (check_same(doctor, client))
        check_mapping(doctor, client);
    gpubuf_close(client);
}

/* --- doctor ------------------------------------------------------------------------------------------------------- */

static void check_version(struct doctor *doctor) {
    const char *theirs = gb_cli_text(doctor->root, "version");

    add_check(doctor, "version", strcmp(theirs, GB_CLI_VERSION) == 0,
              "install gpubuf and gpubufd of one version; what the older one lacks is refused", "daemon %s, gpubuf %s",
              theirs, GB_CLI_VERSION);
}

static void check_ready(struct doctor *doctor) {
    json_t *answer = gb_cli_request(doctor->cli, "GET", "/readyz", NULL);

    add_check(doctor, "ready", answer != NULL, "curl its /readyz?verbose for the check that fails; see its log", "%s",
              answer ? gb_cli_text(answer, "status") : doctor->cli->error.detail);
    json_decref(answer);
}

static void check_backend(struct doctor *doctor) {
    const char *name = gb_cli_text(doctor->root, "backend.name");
    const char *note = gb_cli_text(doctor->root, "backend.note");
    bool cuda = strcmp(name, "cuda") == 0;

    if (!cuda && (!doctor->here || !doctor->gpu))
        skip_check(doctor, "backend", "%s, which serves without a GPU: %s", name, note);
    else
        add_check(doctor, "backend", cuda,
                  "this machine has a GPU: start gpubufd with --backend cuda, which says what is missing, and "
                  "see the driver's checks",
                  "%s: %s", name, note);
}

/* What is switched off is a decision, not a fault. */
static void check_cage(struct doctor *doctor) {
    const char *seccomp = gb_cli_text(doctor->root, "cage.seccomp");
    const char *privileges = gb_cli_text(doctor->root, "cage.privileges");
    double landlock = gb_cli_number(doctor->root, "cage.landlock");
    bool dumps = json_is_true(json_object_get(json_object_get(doctor->root, "cage"), "core_dumps"));
    bool whole = landlock > 0 && strcmp(privileges, "none") == 0 && !dumps &&
                 (strcmp(seccomp, "errno") == 0 || strcmp(seccomp, "kill") == 0);
    char text[128];

    if (seccomp[0] == '\0') {
        skip_check(doctor, "cage", "this daemon tells nothing of one");
        return;
    }
    snprintf(text, sizeof(text), "Landlock %.0f, seccomp %s, privileges %s, core dumps %s", landlock, seccomp,
             privileges, dumps ? "permitted" : "none");
    if (whole)
        add_check(doctor, "cage", true, "", "%s", text);
    else
        skip_check(doctor, "cage", "%s: parts are off (--landlock, --seccomp, --privileges, --core-dumps)", text);
}

/* Behind a proxy, clients of other machines are taken for this one's. */
static void check_tokens(struct doctor *doctor) {
    json_t *access = json_object_get(doctor->root, "access");
    bool proxies = json_is_true(json_object_get(access, "proxies"));

    if (!access)
        skip_check(doctor, "tokens", "this daemon does not tell");
    else if (json_is_true(json_object_get(access, "tokens")))
        add_check(doctor, "tokens", true, "", "requests need one");
    else if (!proxies)
        skip_check(doctor, "tokens", "none: all users of the daemon's machine may do everything");
    else
        add_check(doctor, "tokens", false,
                  "make one with \"gpubufd token add NAME --scope write\", unless the proxy itself refuses clients",
                  "none: all clients of its proxy may do everything");
}

static void check_kernel_tls(struct doctor *doctor) {
    const char *kernel = gb_cli_text(doctor->root, "kernel_tls");

    if (kernel[0] != '\0' && strncmp(gpubuf_url(doctor->cli->client), "https:", 6) == 0)
        skip_check(doctor, "kernel TLS", "%s", kernel);
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
static void check_storage(struct doctor *doctor) {
    json_t *storage = gb_cli_request(doctor->cli, "GET", "/v1/storage", NULL);
    const char *state = gb_cli_text(storage, "state");
    const char *dir = gb_cli_text(storage, "dir");
    char room[24];

    gb_cli_bytes_text((uint64_t)gb_cli_number(storage, "free_bytes"), room);
    if (!storage)
        skip_check(doctor, "data folder", "%s", doctor->cli->error.detail);
    else if (strcmp(state, "none") == 0)
        skip_check(doctor, "data folder", "none: no buffer can be durable (--data-dir)");
    else if (strcmp(state, "ready") == 0)
        add_check(doctor, "data folder", true, "", "%s, %s free", dir, room);
    else
        add_check(doctor, "data folder", false, remedy_of_storage(state), "%s, %s free, is in state %s: %s", dir, room,
                  state, gb_cli_text(storage, "error"));
    json_decref(storage);
}

/* Each way by which a device's memory could be shared: one is enough, and host memory needs none of them. */
static void check_device(struct doctor *doctor, json_t *device) {
    static const char *const ways[] = {"vmm_export_fd", "pool_export_fd", "legacy_ipc"};
    bool cuda = strcmp(gb_cli_text(doctor->root, "backend.name"), "cuda") == 0;
    bool any = offers(device, ways[0]) || offers(device, ways[1]) || offers(device, ways[2]);
    char check[64];
    size_t i;

    for (i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        json_t *found = json_object_get(json_object_get(device, "capabilities"), ways[i]);
        const char *name = gb_cli_text(device, "name");

        snprintf(check, sizeof(check), "device %.0f %s", gb_cli_number(device, "index"), ways[i]);
        if (offers(device, ways[i]))
            add_check(doctor, check, true, "", "%s", name);
        else if (any || !cuda)
            skip_check(doctor, check, "%s: %s", name, gb_cli_text(found, "reason"));
        else
            add_check(doctor, check, false,
                      "share host memory (--kind pinned or pageable) or transfer by requests instead", "%s: %s", name,
                      gb_cli_text(found, "reason"));
    }
}

/* A device without a health reading is no fault. */
static void check_health(struct doctor *doctor, json_t *device) {
    const char *source = gb_cli_text(device, "health.source");
    const char *why = gb_cli_text(device, "health.reason");
    char check[64];

    snprintf(check, sizeof(check), "device %.0f health", gb_cli_number(device, "index"));
    if (source[0] == '\0' || strcmp(source, "none") == 0)
        skip_check(doctor, check, "%s", *why != '\0' ? why : "not known");
    else
        add_check(doctor, check, true, "", "read from %s", source);
}

static void check_devices(struct doctor *doctor) {
    json_t *devices = gb_cli_items(doctor->cli, "/v1/devices");
    json_t *device;
    size_t i;

    if (!devices)
        add_check(doctor, "devices", false, "see the daemon's log", "%s", doctor->cli->error.detail);
    json_array_foreach(devices, i, device) {
        check_device(doctor, device);
        check_health(doctor, device);
    }
    json_decref(devices);
}

/* A daemon that is in no fleet has no such check. */
static void check_fleet(struct doctor *doctor) {
    json_t *fleet = gb_cli_request(doctor->cli, "GET", "/v1/fleet", NULL);
    const char *state = gb_cli_text(fleet, "state");
    const char *why = gb_cli_text(fleet, "why");
    bool joined = strcmp(state, "joined") == 0;

    if (state[0] != '\0' && strcmp(state, "none") != 0)
        add_check(doctor, "fleet", joined,
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
    const char *value = option ? option : getenv(name);

    return value && value[0] != '\0';
}

int gb_cli_run_doctor(struct gb_cli *cli, int argc, char **argv) {
    struct doctor doctor = {.cli = cli, .checks = json_array()};

    (void)argc;
    (void)argv;
    doctor.here = gb_cli_doctor_is_here(gpubuf_url(cli->client));
    doctor.named = given(cli->options.url, "GPUBUF_URL");
    doctor.socket_named = given(cli->options.socket, "GPUBUF_SOCKET");
    doctor.gpu = has_gpu();
    check_reach(&doctor);
    if (doctor.root) {
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
    check_driver(&doctor);
    check_sharing(&doctor);
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

/* --- selftest ----------------------------------------------------------------------------------------------------- */

/* A size as the table's titles have it; those of a known puzzle are no powers of two. */
static void size_text(double bytes, char ret[24]) {
    if (bytes >= 1 << 20 && (json_int_t)bytes % (1 << 20) == 0)
        snprintf(ret, 24, "%.0f MiB", bytes / (1 << 20));
    else if ((json_int_t)bytes % 1024 == 0)
        snprintf(ret, 24, "%.0f KiB", bytes / 1024);
    else if (bytes >= 1e6)
        snprintf(ret, 24, "%.2f MB", bytes / 1e6);
    else
        snprintf(ret, 24, "%.1f kB", bytes / 1e3);
}

/* True when there is a reason in place of times. */
static bool show_reason(json_t *row) {
    const char *reason = gb_cli_text(row, "reason");

    if (reason[0] == '\0')
        return false;
    fputs("  -  ", stdout);
    gb_cli_put(stdout, reason);
    putchar('\n');
    return true;
}

static void show_copies(json_t *copies) {
    char size[24];
    json_t *row;
    size_t i;

    printf("%-9s %-12s %9s %12s %8s\n", "KIND", "DIRECTION", "SIZE", "MICROSECONDS", "GB/S");
    json_array_foreach(copies, i, row) {
        size_text(gb_cli_number(row, "bytes"), size);
        printf("%-9s %-12s %9s ", gb_cli_text(row, "kind"), gb_cli_text(row, "direction"),
               json_object_get(row, "bytes") ? size : "all");
        if (!show_reason(row))
            printf("%12.1f %8.2f\n", gb_cli_number(row, "microseconds"), gb_cli_number(row, "gigabytes_per_s"));
    }
}

static void show_allocations(json_t *allocations) {
    char size[24];
    json_t *row;
    size_t i;

    printf("\n%-22s %-6s %9s %12s %12s\n", "MEMORY FROM", "CASE", "SIZE", "ALLOCATE US", "FREE US");
    json_array_foreach(allocations, i, row) {
        bool pool = strcmp(gb_cli_text(row, "kind"), "device") == 0;

        size_text(gb_cli_number(row, "bytes"), size);
        printf("%-22s %-6s %9s ", pool ? "a pool" : "cudaMalloc, cudaFree", gb_cli_text(row, "case"), size);
        if (!show_reason(row))
            printf("%12.1f %12.1f\n", gb_cli_number(row, "allocate_microseconds"),
                   gb_cli_number(row, "free_microseconds"));
    }
    printf("first: the pool grows; again: the median of five; busy: while work is queued on the device\n");
}

static void show_waiting(json_t *waiting) {
    char earlier[24];
    char size[24];

    printf("\nWaiting told from copying:");
    if (show_reason(waiting))
        return;
    size_text(gb_cli_number(waiting, "bytes"), size);
    size_text(gb_cli_number(waiting, "earlier_bytes"), earlier);
    printf(" %s from the device took %.1f us alone, and %.1f us behind %s of\nearlier copies on its stream: it waited "
           "%.1f us and copied for %.1f us.\n",
           size, gb_cli_number(waiting, "alone_microseconds"), gb_cli_number(waiting, "behind_microseconds"), earlier,
           gb_cli_number(waiting, "waited_microseconds"), gb_cli_number(waiting, "copied_microseconds"));
}

static void show_pinning(json_t *pinning) {
    char size[24];

    printf("Pinning:");
    if (show_reason(pinning))
        return;
    size_text(gb_cli_number(pinning, "bytes"), size);
    printf(" %s took %.1f us, %.1f us for each MiB; giving it back took %.1f us.\n", size,
           gb_cli_number(pinning, "pin_microseconds"), gb_cli_number(pinning, "pin_microseconds_per_mib"),
           gb_cli_number(pinning, "unpin_microseconds"));
}

static void show(json_t *answer) {
    printf("device %.0f, ", gb_cli_number(answer, "device.index"));
    gb_cli_put(stdout, gb_cli_text(answer, "name"));
    printf(": %.1f s\n", gb_cli_number(answer, "seconds"));
    show_copies(json_object_get(answer, "copies"));
    show_allocations(json_object_get(answer, "allocations"));
    show_waiting(json_object_get(answer, "waiting"));
    show_pinning(json_object_get(answer, "pinning"));
}

int gb_cli_run_selftest(struct gb_cli *cli, int argc, char **argv) {
    const char *device = cli->options.device ? cli->options.device : "0";
    char target[GB_CLI_PATH];
    char prefer[32];
    json_t *answer;

    (void)argc;
    (void)argv;
    if (gb_cli_target(cli, target, "/v1/devices/{}/selftest", device) < 0)
        return gb_cli_failed(cli);
    snprintf(prefer, sizeof(prefer), "Prefer: wait=%d", WAIT_S);
    answer = gb_cli_request_with(cli, "POST", target, prefer, NULL);
    if (!answer || cli->options.json)
        return gb_cli_show(cli, answer, NULL, 0);
    show(answer);
    json_decref(answer);
    return GB_CLI_DONE;
}
