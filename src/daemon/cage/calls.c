#include "daemon/cage/calls.h"

#include <stdlib.h>
#include <sys/syscall.h>

struct call {
    unsigned number;
    unsigned sets; /* of which one is needed; 0: none is */
};

struct name {
    unsigned number;
    const char *name;
};

enum group_set {
#define GB_CALL_GROUP(group, set, why) GROUP_##group = SET_##set,
#define GB_CALL(name, group)
#define SET_ALL 0
#define SET_CUDA GB_CAGE_CUDA
#define SET_OUTWARD GB_CAGE_OUTWARD
#define SET_EITHER (GB_CAGE_CUDA | GB_CAGE_OUTWARD)
#include "daemon/cage/calls.def"
#undef GB_CALL
#undef GB_CALL_GROUP
};

static const struct call calls[] = {
#define GB_CALL_GROUP(group, set, why)
#define GB_CALL(name, group) {SYS_##name, GROUP_##group},
#include "daemon/cage/calls.def"
#undef GB_CALL
#undef GB_CALL_GROUP
};

/* Made by the build from its headers. */
static const struct name names[] = {
#define GB_CALL_NAME(name) {__NR_##name, #name},
#include "daemon/cage/names.inc"
#undef GB_CALL_NAME
};

static int ascending(const void *a, const void *b) {
    unsigned x = *(const unsigned *)a;
    unsigned y = *(const unsigned *)b;

    return (x > y) - (x < y);
}

size_t gb_calls_permitted(unsigned sets, unsigned *ret, size_t room) {
    size_t count = 0;
    size_t i;

    for (i = 0; i < sizeof calls / sizeof calls[0] && count < room; i++)
        if (calls[i].sets == 0 || (calls[i].sets & sets) != 0)
            ret[count++] = calls[i].number;
    qsort(ret, count, sizeof *ret, ascending);
    return count;
}

const char *gb_call_name(unsigned number) {
    size_t i;

    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].number == number)
            return names[i].name;
    return "unknown";
}
