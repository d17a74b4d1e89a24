#include <sys/resource.h>

#include "daemon/daemon.h"

/* Descriptors that are not connections: database, devices, epoll, listening sockets. */
#define OTHER_FILES 512

/* Buffers that other processes can map have a descriptor each, in that half of all which connections leave (backend/memfd.h). */
#define MAPPED_FILES 32768

int gb_limits_raise(uint64_t connections, struct gb_error *err) {
    rlim_t need = (rlim_t)(connections + OTHER_FILES);
    rlim_t wish = 2 * (need > MAPPED_FILES ? need : MAPPED_FILES);
    struct rlimit limit;
    rlim_t hard;
    bool enough;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wish)
        return 0;
    enough = limit.rlim_cur >= need;
    hard = limit.rlim_max;
    if (limit.rlim_max < need)
        limit.rlim_max = need;
    limit.rlim_cur = limit.rlim_max < wish ? limit.rlim_max : wish;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0 || enough)
        return 0;
    return gb_error_set(err, GB_ERR_INTERNAL,
                        "--max-connections %llu needs %llu open files, but this process may have %llu: raise the limit "
                        "(LimitNOFILE= in the unit, ulimit -Hn in a shell) or give --max-connections %llu",
                        (unsigned long long)connections, (unsigned long long)need, (unsigned long long)hard,
                        (unsigned long long)(hard > OTHER_FILES ? hard - OTHER_FILES : 1));
}
