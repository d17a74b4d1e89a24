#include <sys/resource.h>

#include "daemon/daemon.h"

/* Descriptors that are not connections: database, devices, epoll, listening sockets. */
#define OTHER_FILES 512

/* Buffers that other processes can map have a descriptor each, in that half of all which connections leave
 * (backend/memfd.h). */
#define MAPPED_FILES 32768

/* Who only listens to the feed gets what connections leave. */
static void share(rlim_t files, rlim_t need, uint64_t *listeners) {
    if (files < need + *listeners)
        *listeners = files > need ? files - need : 1;
}

uint64_t gb_limits_fit(uint64_t connections, unsigned each) {
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max / 4 * 3 >= connections * each + OTHER_FILES)
        return connections;
    return limit.rlim_max / 4 * 3 > OTHER_FILES + each ? (limit.rlim_max / 4 * 3 - OTHER_FILES) / each : 1;
}

int gb_limits_raise(uint64_t connections, unsigned each, uint64_t *listeners, struct gb_error *err) {
    rlim_t need = (rlim_t)(connections * each + OTHER_FILES);
    rlim_t most = need + (rlim_t)*listeners;
    rlim_t wish = 2 * (most > MAPPED_FILES ? most : MAPPED_FILES);
    struct rlimit limit;
    rlim_t before;
    rlim_t hard;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wish)
        return 0;
    before = limit.rlim_cur;
    hard = limit.rlim_max;
    if (limit.rlim_max < need)
        limit.rlim_max = need;
    limit.rlim_cur = limit.rlim_max < wish ? limit.rlim_max : wish;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        limit.rlim_cur = before;
    share(limit.rlim_cur, need, listeners);
    if (limit.rlim_cur >= need)
        return 0;
    return gb_error_set(err, GB_ERR_INTERNAL,
                        "--max-connections %llu needs %llu open files, but this process may have %llu: raise the limit "
                        "(LimitNOFILE= in the unit, ulimit -Hn in a shell) or give --max-connections %llu",
                        (unsigned long long)connections, (unsigned long long)need, (unsigned long long)hard,
                        (unsigned long long)(hard > OTHER_FILES + each ? (hard - OTHER_FILES) / each : 1));
}
