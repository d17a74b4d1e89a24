/* The road to the daemon: where it is, TLS, whether it answers, and whether it lets us in. */
#include <ctype.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "cli/doctor.h"
#include "cli/hint.h"

#define DAY_S 86400
#define DAYS_LEAST 14 /* of a certificate: less is said to be renewed */
#define HOST_SIZE 256

/* --- where it is -------------------------------------------------------------------------------------------------- */

/* The host of a URL, without brackets. */
static void host_of(const char *url, char *ret, size_t size) {
    const char *at = strstr(url, "://");
    size_t n;

    at = at != NULL ? at + 3 : url;
    n = at[0] == '[' ? strcspn(++at, "]") : strcspn(at, ":/");
    snprintf(ret, size, "%.*s", (int)n, at);
}

static bool same_address(const struct sockaddr *a, const struct sockaddr *b) {
    if (a == NULL || b == NULL || a->sa_family != b->sa_family)
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
    for (at = interfaces; at != NULL; at = at->ifa_next)
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
    host_of(url, host, sizeof host);
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
static const char *hint(struct gb_cli_doctor *doctor, const char *otherwise) {
    const char *text = gb_cli_hint(doctor->cli);
    size_t n;

    if (text == NULL)
        return otherwise;
    snprintf(doctor->remedy, sizeof doctor->remedy, "%c%s", tolower((unsigned char)text[0]), text + 1);
    n = strlen(doctor->remedy);
    if (n > 0 && doctor->remedy[n - 1] == '.')
        doctor->remedy[n - 1] = '\0';
    return doctor->remedy;
}

static bool is_https(const struct gb_cli_doctor *doctor) {
    return strncmp(gpubuf_url(doctor->cli->client), "https:", 6) == 0;
}

/* What the look found says what is wrong. */
static const char *remedy_of_tls(const struct gb_cli_doctor *doctor) {
    if (!is_https(doctor))
        return "name it with https://";
    if (!doctor->looked)
        return "name it with http:// if it is to have no TLS, or start it with --tls-listen";
    return doctor->peer.trusted ? OWN_CERTIFICATE : TRUST;
}

const char *gb_cli_doctor_remedy(struct gb_cli_doctor *doctor, const char *otherwise) {
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

/* --- checks ------------------------------------------------------------------------------------------------------- */

static const char *remedy_of_trust(const struct gpubuf_peer *peer) {
    if (!peer->issuer_known)
        return "trust its authority, with --cacert FILE or GPUBUF_CACERT (ca.pem of \"gpubufd tls init\")";
    if (!peer->names_host)
        return "ask by one of its names";
    return "see gpubufd(8) on \"gpubufd tls\"";
}

static void check_certificate(struct gb_cli_doctor *doctor) {
    const struct gpubuf_peer *peer = &doctor->peer;
    long long days = (long long)((peer->left_s + (peer->left_s < 0 ? -DAY_S : DAY_S) / 2) / DAY_S);
    bool expired = peer->left_s < 0;
    char host[HOST_SIZE];

    host_of(gpubuf_url(doctor->cli->client), host, sizeof host);
    gb_cli_doctor_add(doctor, "certificate", peer->trusted,
                      expired ? "\"gpubufd tls renew\" makes it again with the same key" : remedy_of_trust(peer),
                      peer->trusted ? "%s, issued by %s" : "%s, issued by %s: it %s", peer->subject, peer->issuer,
                      peer->why);
    gb_cli_doctor_add(doctor, "certificate's names", peer->names_host,
                      "ask by one of its names, or let \"gpubufd tls renew --name NAME\" (--ip for an address) add one",
                      peer->names_host ? "%s" : "%s: %s is not among them", peer->names, host);
    gb_cli_doctor_add(doctor, "certificate's end", !expired && days >= DAYS_LEAST,
                      "\"gpubufd tls renew\" makes it again with the same key",
                      expired ? "%.10s, which was %lld days ago" : "%.10s, %lld days left", peer->not_after,
                      expired ? -days : days);
}

static void check_tls(struct gb_cli_doctor *doctor) {
    struct gb_cli *cli = doctor->cli;
    const struct gpubuf_peer *peer = &doctor->peer;

    if (!is_https(doctor))
        return;
    if (gpubuf_peer_get(cli->client, &doctor->peer, &cli->error) < 0) {
        if (cli->error.code == GPUBUF_CANNOT_CONNECT) /* which the next check says */
            return;
        gb_cli_doctor_add(doctor, "TLS", false, gb_cli_doctor_remedy(doctor, ANOTHER), "%s", cli->error.detail);
        return;
    }
    doctor->looked = true;
    gb_cli_doctor_add(doctor, "TLS", true, "", "%s, %s%s", peer->protocol, peer->cipher,
                      peer->wants_certificate ? ", and the daemon asks for a client's certificate" : "");
    check_certificate(doctor);
}

/* The detail of most errors begins with the URL. */
static void check_answer(struct gb_cli_doctor *doctor) {
    struct gb_cli *cli = doctor->cli;
    const char *url = gpubuf_url(cli->client);
    json_t *answer = gb_cli_request(cli, "GET", "/livez", NULL);

    doctor->reached = answer != NULL;
    json_decref(answer);
    if (doctor->reached)
        gb_cli_doctor_add(doctor, "daemon", true, "", "%s answers within %.1f ms", url,
                          gpubuf_answer_of(cli->client)->took_ms);
    else if (strstr(cli->error.detail, url) != NULL)
        gb_cli_doctor_add(doctor, "daemon", false, gb_cli_doctor_remedy(doctor, ANOTHER), "%s", cli->error.detail);
    else
        gb_cli_doctor_add(doctor, "daemon", false, gb_cli_doctor_remedy(doctor, ANOTHER), "%s: %s", url,
                          cli->error.detail);
}

static void check_access(struct gb_cli_doctor *doctor) {
    doctor->root = gb_cli_request(doctor->cli, "GET", "/v1", NULL);
    if (doctor->root != NULL)
        gb_cli_doctor_add(doctor, "access", true, "", "the daemon lets us in");
    else if (doctor->cli->error.code == GPUBUF_FORBIDDEN)
        gb_cli_doctor_add(doctor, "access", false, GB_CLI_SCOPE_REMEDY, "the token is in force, but: %s",
                          doctor->cli->error.detail);
    else
        gb_cli_doctor_add(doctor, "access", false, gb_cli_doctor_remedy(doctor, ANOTHER), "%s",
                          doctor->cli->error.detail);
}

void gb_cli_doctor_reach(struct gb_cli_doctor *doctor) {
    check_tls(doctor);
    check_answer(doctor);
    if (doctor->reached)
        check_access(doctor);
}
