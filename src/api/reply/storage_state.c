#include "api/reply/storage_state.h"

enum gb_disk_state gb_storage_state(const struct gb_storage_numbers *n, const struct gb_error **ret_why) {
    bool commits_fail = !n->commits && n->disk.state == GB_DISK_READY;

    *ret_why = commits_fail ? &n->commit_error : &n->disk.error;
    return commits_fail ? GB_DISK_FAILED : n->disk.state;
}
