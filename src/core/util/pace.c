#include "core/util/pace.h"

#include "base/clock.h"

uint64_t gb_pace_take(struct gb_pace *pace, uint64_t now_ns, uint64_t n) {
    if (pace->rate == 0)
        return 0;
    if (pace->due_ns < now_ns)
        pace->due_ns = now_ns;
    pace->due_ns += n * GB_NS_PER_S / pace->rate;
    return pace->due_ns - now_ns;
}
