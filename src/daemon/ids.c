/* Lists of users and groups, by number: names would be those of this machine, and the peers may be in containers. */
#include <string.h>

#include "base/parse.h"
#include "daemon/daemon.h"

int gb_daemon_read_ids(const struct gb_text_list *words, const char *option, struct gb_id_list *ret,
                       struct gb_error *err) {
    size_t i;

    *ret = (struct gb_id_list){.any = false};
    for (i = 0; i < words->count; i++) {
        const char *word = words->items[i];
        uint64_t id;

        if (strcmp(word, "any") == 0) {
            ret->any = true;
            continue;
        }
        /* The last number stands for "none" in the system's own calls. */
        if (gb_parse_u64(word, strlen(word), &id) != GB_PARSE_OK || id >= UINT32_MAX)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "%s: \"%.64s\" is not permitted; permitted: numbers from 0 to 4294967294, or any",
                                option, word);
        if (ret->count == GB_MAP_IDS_MAX)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s: more than %d numbers", option, GB_MAP_IDS_MAX);
        ret->id[ret->count++] = (uint32_t)id;
    }
    return 0;
}
