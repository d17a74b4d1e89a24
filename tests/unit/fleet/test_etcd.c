/* The same with a real etcd, where one is installed: what the small one of the other tests only believes. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "fleet_fixture.h"
#include "gb_test.h"
#include "tls_files.h"

#define MEMBERS 3
/* A leader is there within some tenths of a second. */
#define QUICK "--unsafe-no-fsync", "--heartbeat-interval", "20", "--election-timeout", "200"

/* One etcd of a cluster. */
struct member {
    pid_t pid;
    char url[64];
    char peer[64];
};

static struct member members[MEMBERS];
static int member_count;
static char endpoints[256];
static char dir[32];
static bool over_tls;
static int notices = -1; /* where each etcd says that it is ready, as to systemd */
static struct gb_tls_files tls;
static struct node a;
static struct node b;

static bool is_installed(void) {
    return system("etcd --version >/dev/null 2>&1") == 0;
}

static bool may_listen(uint16_t port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool may = bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;

    close(fd);
    return may;
}

/* Not one that the kernel gives to a connection while an etcd is away: below 32768. */
static int free_port(void) {
    uint16_t port;

    do {
        ck_assert_int_eq(getrandom(&port, sizeof(port), 0), sizeof(port));
        port = (uint16_t)(12000 + port % 20000);
    } while (!may_listen(port));
    return port;
}

/* A file of the test's authority, in one of a few buffers. */
static const char *file(const char *name) {
    static char paths[4][GB_TLS_PATH];
    static unsigned at;

    return gb_tls_path(&tls, name, paths[at++ % 4]);
}

static void open_notices(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(address.sun_path, sizeof(address.sun_path), "%s/notices", dir);
    notices = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(notices, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(setenv("NOTIFY_SOCKET", address.sun_path, 1), 0);
}

static void wait_until_ready(int count) {
    char text[256];

    while (count > 0) {
        ssize_t n = recv(notices, text, sizeof(text) - 1, 0);

        ck_assert_int_ge(n, 0);
        text[n] = '\0';
        count -= strstr(text, "READY=1") != NULL;
    }
}

static void start_member(int i) {
    char name[16];
    char data[64];
    char cluster[512] = "";
    int k;

    for (k = 0; k < member_count; k++)
        snprintf(cluster + strlen(cluster), sizeof(cluster) - strlen(cluster), "%sm%d=%s", k > 0 ? "," : "", k,
                 members[k].peer);
    snprintf(name, sizeof(name), "m%d", i);
    snprintf(data, sizeof(data), "%s/%d", dir, i);
    members[i].pid = fork();
    if (members[i].pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr));
        if (over_tls)
            execlp("etcd", "etcd", "--data-dir", data, "--listen-client-urls", members[i].url,
                   "--advertise-client-urls", members[i].url, "--listen-peer-urls", members[i].peer, "--cert-file",
                   file("server.pem"), "--key-file", file("server.key"), "--trusted-ca-file", file("root.pem"),
                   "--client-cert-auth", QUICK, NULL);
        else
            execlp("etcd", "etcd", "--name", name, "--data-dir", data, "--listen-client-urls", members[i].url,
                   "--advertise-client-urls", members[i].url, "--listen-peer-urls", members[i].peer,
                   "--initial-advertise-peer-urls", members[i].peer, "--initial-cluster", cluster, QUICK, NULL);
        _exit(127);
    }
}

static void stop_member(int i) {
    kill(members[i].pid, SIGKILL);
    waitpid(members[i].pid, NULL, 0);
}

static void add_files(struct gb_fleet_config *config) {
    config->ca_file = file("root.pem");
    config->cert_file = file("client.pem");
    config->key_file = file("client.key");
}

/* The fixture's own etcd is there too, unused. */
static void start(int count) {
    struct gb_fleet_config config = {.fleet = "main", .endpoints = endpoints};
    char uuid[40];
    int i;

    if (over_tls)
        add_files(&config);

    fleet_setup();
    strcpy(dir, "/tmp/gb-etcd-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    member_count = count;
    endpoints[0] = '\0';
    for (i = 0; i < count; i++) {
        snprintf(members[i].url, sizeof(members[i].url), "%s://127.0.0.1:%d", over_tls ? "https" : "http", free_port());
        snprintf(members[i].peer, sizeof(members[i].peer), "http://127.0.0.1:%d", free_port());
        if (over_tls) /* by the name in its certificate */
            snprintf(endpoints, sizeof(endpoints), "https://localhost:%s", strrchr(members[i].url, ':') + 1);
        else
            snprintf(endpoints + strlen(endpoints), sizeof(endpoints) - strlen(endpoints), "%s%s", i > 0 ? "," : "",
                     members[i].url);
    }
    open_notices();
    for (i = 0; i < count; i++)
        start_member(i);
    wait_until_ready(count);
    while (gb_fleet_init(&config, uuid, &err) < 0) /* a leader may have to be found again */
        err = GB_ERROR_INIT;
    ck_assert_int_eq(gb_fleet_init(&config, uuid, &err), 1);
}

static void setup(void) {
    start(1);
}

static void setup_cluster(void) {
    start(MEMBERS);
}

static void setup_tls(void) {
    struct gb_tls_wish server = {.dn = "CN=etcd", .dns = "localhost", .from_days = -1, .to_days = 1};
    struct gb_tls_wish client = {.dn = "O=gpubuf", .from_days = -1, .to_days = 1}; /* without a CN */

    gb_tls_files_init(&tls);
    gb_tls_issue(&tls, "server", &server, &tls.root, NULL);
    gb_tls_issue(&tls, "client", &client, &tls.root, NULL);
    over_tls = true;
    start(1);
}

static void teardown(void) {
    char command[64];
    int i;

    for (i = 0; i < member_count; i++)
        stop_member(i);
    close(notices);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
    fleet_teardown();
    if (over_tls)
        gb_tls_files_done(&tls);
}

static void open_node(struct node *node, const char *name, uint64_t uuid, unsigned ttl_s) {
    struct gb_fleet_config config = config_of(node, name, uuid);

    config.endpoints = endpoints;
    config.ttl_s = ttl_s;
    node_open_with(node, &config);
}

START_TEST(two_nodes_and_a_session) {
    struct gb_fleet_register made;
    struct gb_fleet_find find;
    struct asked asked;

    open_node(&a, "a", 1311768465173141112, 2);
    open_node(&b, "b", 77, 2);
    node_wait(&a, GB_FLEET_JOINED);
    node_wait(&b, GB_FLEET_JOINED);
    ck_assert_int_eq(find_session(&b, "s", false, NULL), GB_ERR_SESSION_NOT_FOUND);
    ck_assert_int_eq(register_session(&a, "s", &made), GB_OK);
    ck_assert_int_eq(find_session(&b, "s", true, &find), GB_OK);
    ck_assert_str_eq(find.session.node.s, "a");
    ck_assert_str_eq(find.session.claim, made.session.claim);
    ck_assert(find.owner.alive);
    ck_assert_uint_eq(find.owner.incarnation, stat_of(&a).incarnation);
    ck_assert_int_eq(register_session(&b, "s", &made), GB_ERR_SESSION_EXISTS);
    asked_init(&asked);
    gb_fleet_list_nodes(b.fleet, &asked.nodes);
    ck_assert_int_eq(asked_wait(&asked), GB_OK);
    ck_assert_uint_eq(asked.nodes.count, 2);
    ck_assert(asked.nodes.items[0].alive && asked.nodes.items[1].alive);
    free(asked.nodes.items);
    asked_init(&asked);
    asked.forget.node = name_of("a");
    gb_fleet_forget(b.fleet, &asked.forget);
    ck_assert_int_eq(asked_wait(&asked), GB_ERR_NODE_ALIVE);
    node_close(&a);
    asked_init(&asked);
    asked.forget.node = name_of("a");
    gb_fleet_forget(b.fleet, &asked.forget);
    ck_assert_int_eq(asked_wait(&asked), GB_OK);
    ck_assert_int_eq(find_session(&b, "s", true, NULL), GB_ERR_SESSION_NOT_FOUND);
    node_close(&b);
}
END_TEST

START_TEST(sessions_by_pages) {
    struct asked asked;
    char name[16];
    int i;

    open_node(&a, "a", NODE_UUID, 2);
    node_wait(&a, GB_FLEET_JOINED);
    for (i = 0; i < 70; i++) {
        snprintf(name, sizeof(name), "s%02d", i);
        ck_assert_int_eq(register_session(&a, name, NULL), GB_OK);
    }
    asked_init(&asked);
    if (_i == 1)
        asked.sessions.node = name_of("a");
    asked.sessions.after = name_of("s01");
    asked.sessions.limit = 67;
    gb_fleet_list_sessions(a.fleet, &asked.sessions);
    ck_assert_int_eq(asked_wait(&asked), GB_OK);
    ck_assert_uint_eq(asked.sessions.count, 67);
    ck_assert(asked.sessions.more);
    ck_assert_str_eq(asked.sessions.items[0].name.s, "s02");
    ck_assert_str_eq(asked.sessions.items[66].name.s, "s68");
    free(asked.sessions.items);
    node_close(&a);
}
END_TEST

START_TEST(a_second_process_is_a_duplicate) {
    open_node(&a, "a", NODE_UUID, 2 + 4 * (unsigned)_i);
    node_wait(&a, GB_FLEET_JOINED);
    open_node(&b, "a", NODE_UUID, 2 + 4 * (unsigned)_i);
    node_wait(&b, GB_FLEET_DUPLICATE);
    ck_assert_int_eq(stat_of(&a).state, GB_FLEET_JOINED);
    node_close(&b);
    ck_assert_int_eq(stat_of(&a).state, GB_FLEET_JOINED);
    node_close(&a);
}
END_TEST

START_TEST(etcd_is_killed_and_comes_back) {
    struct gb_fleet_register made;
    struct gb_fleet_find find;

    open_node(&a, "a", NODE_UUID, 2);
    node_wait(&a, GB_FLEET_JOINED);
    ck_assert_int_eq(register_session(&a, "s", &made), GB_OK);
    ck_assert_int_eq(find_session(&a, "s", false, NULL), GB_OK);
    stop_member(0);
    node_wait(&a, GB_FLEET_ALONE);
    ck_assert_int_eq(find_session(&a, "s", false, &find), GB_OK);
    ck_assert(find.stale);
    ck_assert_int_eq(register_session(&a, "t", NULL), GB_ERR_DIRECTORY_UNAVAILABLE);
    gb_fleet_unregister(a.fleet, &made.session.name, made.session.claim, true);
    start_member(0);
    node_wait(&a, GB_FLEET_JOINED);
    while (find_session(&a, "s", true, NULL) != GB_ERR_SESSION_NOT_FOUND)
        ;
    node_close(&a);
}
END_TEST

/* A process that could not say that it ends: its lease is still there. */
/* When the nodes have had time to tell what they have: until then what is not there may be, and what is there stays. */
static void wait_until_absent(struct node *node, const char *session) {
    int code;

    while ((code = find_session(node, session, true, NULL)) != GB_ERR_SESSION_NOT_FOUND)
        ck_assert(code == GB_OK || code == GB_ERR_OWNER_UNKNOWN);
}

START_TEST(a_killed_process_comes_back) {
    open_node(&a, "a", NODE_UUID, 2);
    node_wait(&a, GB_FLEET_JOINED);
    ck_assert_int_eq(register_session(&a, "kept", NULL), GB_OK);
    stop_member(0);
    node_close(&a);
    start_member(0);
    b.has = _i == 1;
    open_node(&b, "a", NODE_UUID, 2);
    node_wait(&b, GB_FLEET_JOINED);
    if (_i == 1)
        ck_assert_int_eq(find_session(&b, "kept", true, NULL), GB_OK);
    else
        wait_until_absent(&b, "kept");
    node_close(&b);
}
END_TEST

/* Waits until that member has what the others have: a reading of the majority through it comes behind. A second "a"
 * joins nothing. */
static void catch_up(int member, const char *session) {
    struct gb_fleet_config config = config_of(&b, "a", 77);

    config.endpoints = members[member].url;
    node_open_with(&b, &config);
    node_wait(&b, GB_FLEET_DUPLICATE);
    ck_assert_int_eq(find_session(&b, session, true, NULL), GB_OK);
    node_close(&b);
}

START_TEST(without_a_majority_look_ups_go_on) {
    struct gb_fleet_find find;
    struct asked asked;

    open_node(&a, "a", NODE_UUID, 3);
    node_wait(&a, GB_FLEET_JOINED);
    ck_assert_int_eq(register_session(&a, "s", NULL), GB_OK);
    catch_up((_i + 2) % MEMBERS, "s");
    stop_member(_i);
    stop_member((_i + 1) % MEMBERS);
    node_wait(&a, GB_FLEET_ALONE);
    ck_assert_int_eq(find_session(&a, "s", false, &find), GB_OK);
    ck_assert(!find.stale); /* the member that is left has said so */
    ck_assert_int_eq(find_session(&a, "t", false, NULL), GB_ERR_DIRECTORY_UNAVAILABLE);
    ck_assert_int_eq(register_session(&a, "t", NULL), GB_ERR_DIRECTORY_UNAVAILABLE);
    asked_init(&asked);
    gb_fleet_list_nodes(a.fleet, &asked.nodes);
    ck_assert_int_eq(asked_wait(&asked), GB_OK);
    ck_assert_uint_eq(asked.nodes.count, 1);
    free(asked.nodes.items);
    start_member(_i);
    start_member((_i + 1) % MEMBERS);
    node_wait(&a, GB_FLEET_JOINED);
    wait_until_absent(&a, "t");
    node_close(&a);
}
END_TEST

START_TEST(the_loss_of_one_member_is_not_felt) {
    int code;

    open_node(&a, "a", NODE_UUID, 6);
    node_wait(&a, GB_FLEET_JOINED);
    stop_member(_i);
    do /* until there is a leader, and all nodes have had time to tell what they have */
        code = register_session(&a, "s", NULL);
    while (code == GB_ERR_DIRECTORY_UNAVAILABLE || code == GB_ERR_OWNER_UNKNOWN);
    ck_assert_int_eq(find_session(&a, "s", true, NULL), GB_OK);
    start_member(_i);
    node_close(&a);
}
END_TEST

START_TEST(over_tls_with_a_certificate) {
    struct gb_fleet_config config = config_of(&a, "a", NODE_UUID);

    config.endpoints = endpoints;
    add_files(&config);
    node_open_with(&a, &config);
    node_wait(&a, GB_FLEET_JOINED);
    ck_assert_int_eq(register_session(&a, "s", NULL), GB_OK);
    ck_assert_int_eq(find_session(&a, "s", false, NULL), GB_OK);
    node_close(&a);
}
END_TEST

START_TEST(over_tls_both_show_who_they_are) {
    struct gb_fleet_config config = config_of(&a, "a", NODE_UUID);
    char uuid[40];

    config.endpoints = endpoints;
    add_files(&config);
    if (_i == 0)
        config.ca_file = ""; /* the system's, which do not know the server */
    else if (_i == 1)
        config.cert_file = config.key_file = NULL;
    else
        config.endpoints = members[0].url; /* which its certificate does not name */
    ck_assert_int_eq(gb_fleet_init(&config, uuid, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_DIRECTORY_UNAVAILABLE);
}
END_TEST

static TCase *tcase;

static void add(const TTest *test, int times) {
    tcase_add_loop_test(tcase, test, 0, times);
}

int main(void) {
    Suite *suite = suite_create("etcd");

    tcase = tcase_create("etcd");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    if (is_installed()) {
        add(two_nodes_and_a_session, 1);
        add(sessions_by_pages, 2);
        add(a_second_process_is_a_duplicate, 2);
        add(etcd_is_killed_and_comes_back, 1);
        add(a_killed_process_comes_back, 2);
    }
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("cluster");
    tcase_add_checked_fixture(tcase, setup_cluster, teardown);
    tcase_set_timeout(tcase, 120);
    if (is_installed()) {
        add(without_a_majority_look_ups_go_on, MEMBERS);
        add(the_loss_of_one_member_is_not_felt, MEMBERS);
    }
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("tls");
    tcase_add_checked_fixture(tcase, setup_tls, teardown);
    tcase_set_timeout(tcase, 120);
    if (is_installed()) {
        add(over_tls_with_a_certificate, 1);
        add(over_tls_both_show_who_they_are, 3);
    }
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
