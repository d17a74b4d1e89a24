/* Who may connect to the UNIX socket, as the options say it. */
#include <grp.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "daemon/listen.h"

#define GROUP_BYTES 16384

static int read_mode(const char *text, mode_t *ret, struct gb_error *err) {
    size_t n = strlen(text);

    if (n == 0 || n > 4 || strspn(text, "01234567") != n || strtoul(text, NULL, 8) > 0777)
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "--socket-mode: \"%.64s\" is not permitted; permitted: an octal number from 0 to 0777, such "
            "as 0660",
            text);
    *ret = (mode_t)strtoul(text, NULL, 8);
    return 0;
}

/* A number is taken as it is: the group may be one of containers that has no name here. */
static int read_group(const char *text, gid_t *ret, struct gb_error *err) {
    char room[GROUP_BYTES];
    struct group group;
    struct group *found = NULL;
    uint64_t number;

    if (gb_parse_u64(text, strlen(text), &number) == GB_PARSE_OK && number < UINT32_MAX) {
        *ret = (gid_t)number;
        return 0;
    }
    if (getgrnam_r(text, &group, room, sizeof room, &found) != 0 || found == NULL)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "--socket-group: there is no group \"%.64s\" on this machine; name one of getent group, or "
                            "give its number",
                            text);
    *ret = group.gr_gid;
    return 0;
}

int gb_socket_rights_read(const char *mode, const char *group, struct gb_socket_rights *ret, struct gb_error *err) {
    struct gb_socket_rights rights = {.gid = (gid_t)-1};

    if (read_mode(mode, &rights.mode, err) != 0 || (group[0] != '\0' && read_group(group, &rights.gid, err) != 0))
        return -1;
    *ret = rights;
    return 0;
}
