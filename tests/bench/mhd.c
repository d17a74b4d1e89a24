/* The ceiling of polls: libmicrohttpd with a constant answer, made once, from two epoll workers. The second call of the
 * handler gives the answer, because an answer in the first call closes the connection. The memory of a connection is
 * small, because all of it is zeroed after each request. Each worker has at most 120 connections: the built-in loop of
 * 0.9.75 stalls when exactly 128 are ready at once. */
#include <arpa/inet.h>
#include <getopt.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util.h"

#define CONNECTIONS_PER_WORKER 120

static enum MHD_Result answer(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *data, size_t *data_size, void **state) {
    (void)url;
    (void)method;
    (void)version;
    (void)data;
    (void)data_size;
    if (!*state) {
        *state = arg;
        return MHD_YES;
    }
    return MHD_queue_response(connection, MHD_HTTP_OK, arg);
}

static struct MHD_Response *constant(size_t bytes) {
    struct MHD_Response *response;
    char *body = malloc(bytes + 1);

    if (!body)
        bench_die("no memory");
    memset(body, 'x', bytes);
    response = MHD_create_response_from_buffer(bytes, body, MHD_RESPMEM_MUST_FREE);
    if (!response || MHD_add_response_header(response, "Content-Type", "application/json") != MHD_YES)
        bench_die("no memory");
    return response;
}

int main(int argc, char **argv) {
    static const struct option table[] = {
        {"port", 1, NULL, 'p'}, {"bytes", 1, NULL, 'b'}, {"threads", 1, NULL, 't'}, {NULL, 0, NULL, 0}};
    struct sockaddr_in addr;
    const union MHD_DaemonInfo *info;
    struct MHD_Daemon *daemon;
    size_t bytes = 1024;
    unsigned threads = 2;
    int port = 0, c;

    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (c == 'p')
            port = (int)bench_parse_size(optarg, "port");
        else if (c == 'b')
            bytes = bench_parse_size(optarg, "bytes");
        else if (c == 't')
            threads = (unsigned)bench_parse_size(optarg, "threads");
        else
            bench_die("usage: gb-bench-mhd [--port N] [--bytes SIZE] [--threads N]");
    }
    memset(&addr, 0, sizeof addr);
    addr.sin_family = AF_INET;
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    addr.sin_port = htons((uint16_t)port);
    daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, (uint16_t)port, NULL, NULL, answer, constant(bytes),
                              MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&addr, MHD_OPTION_THREAD_POOL_SIZE, threads,
                              MHD_OPTION_CONNECTION_LIMIT, threads * CONNECTIONS_PER_WORKER,
                              MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)16384, MHD_OPTION_END);
    if (!daemon)
        bench_die("libmicrohttpd did not start");
    info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
    if (!info)
        bench_die("libmicrohttpd does not know its port");
    printf("PORT %d\n", info->port);
    fflush(stdout);
    for (;;)
        pause();
}
