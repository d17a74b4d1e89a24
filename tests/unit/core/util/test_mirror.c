/* The table of heads against Caffe's SyncedMemory, call by call. */
#include "core/buffer/buffer.h"

#include "gb_test.h"

#define N GB_HEAD_UNINITIALIZED
#define H GB_HEAD_HOST
#define D GB_HEAD_DEVICE
#define S GB_HEAD_SYNCED

/* What SyncedMemory does before its head moves. */
enum before { NOTHING, ZEROES, COPIES };

/* Its calls: what it does and where its head is afterwards, by the head before; and the actions of ours that are the
 * same. The second action is GB_MIRROR_ACTIONS where one is enough. */
static const struct call {
    const char *name;
    enum gb_mirror_action action;
    enum gb_mirror_action then;
    struct {
        enum before before;
        enum gb_head next;
    } by_head[GB_HEAD_COUNT];
} calls[] = {
    /*                                                            uninitialized  at CPU        at GPU        synced */
    {"to_cpu", GB_MIRROR_SYNC_HOST, GB_MIRROR_ACTIONS, {{ZEROES, H}, {NOTHING, H}, {COPIES, S}, {NOTHING, S}}},
    {"to_gpu", GB_MIRROR_SYNC_DEVICE, GB_MIRROR_ACTIONS, {{ZEROES, D}, {COPIES, S}, {NOTHING, D}, {NOTHING, S}}},
    {"cpu_data", GB_MIRROR_SYNC_HOST, GB_MIRROR_ACTIONS, {{ZEROES, H}, {NOTHING, H}, {COPIES, S}, {NOTHING, S}}},
    {"gpu_data", GB_MIRROR_SYNC_DEVICE, GB_MIRROR_ACTIONS, {{ZEROES, D}, {COPIES, S}, {NOTHING, D}, {NOTHING, S}}},
    {"mutable_cpu_data",
     GB_MIRROR_SYNC_HOST,
     GB_MIRROR_WRITE_HOST,
     {{ZEROES, H}, {NOTHING, H}, {COPIES, H}, {NOTHING, H}}},
    {"mutable_gpu_data",
     GB_MIRROR_SYNC_DEVICE,
     GB_MIRROR_WRITE_DEVICE,
     {{ZEROES, D}, {COPIES, D}, {NOTHING, D}, {NOTHING, D}}},
    /* A write of a part is mutable_data too. */
    {"mutable_cpu_data",
     GB_MIRROR_MERGE_HOST,
     GB_MIRROR_ACTIONS,
     {{ZEROES, H}, {NOTHING, H}, {COPIES, H}, {NOTHING, H}}},
    {"mutable_gpu_data",
     GB_MIRROR_MERGE_DEVICE,
     GB_MIRROR_ACTIONS,
     {{ZEROES, D}, {COPIES, D}, {NOTHING, D}, {NOTHING, D}}},
    /* Adopting a side is a write of all of it. */
    {"set_cpu_data", GB_MIRROR_WRITE_HOST, GB_MIRROR_ACTIONS, {{NOTHING, H}, {NOTHING, H}, {NOTHING, H}, {NOTHING, H}}},
    {"set_gpu_data",
     GB_MIRROR_WRITE_DEVICE,
     GB_MIRROR_ACTIONS,
     {{NOTHING, D}, {NOTHING, D}, {NOTHING, D}, {NOTHING, D}}},
};
#define CALLS (sizeof(calls) / sizeof(calls[0]))

static enum before before_of(enum gb_mirror_step step) {
    return step == GB_MIRROR_ZERO ? ZEROES : step == GB_MIRROR_COPY ? COPIES : NOTHING;
}

START_TEST(every_call_of_synced_memory) {
    enum gb_head head;
    size_t i;

    for (i = 0; i < CALLS; i++) {
        for (head = N; head < GB_HEAD_COUNT; head++) {
            struct gb_mirror_move move = gb_mirror_move(head, calls[i].action);
            enum before before = before_of(move.step);

            if (calls[i].then != GB_MIRROR_ACTIONS) {
                move = gb_mirror_move(move.next, calls[i].then);
                ck_assert_int_eq(before_of(move.step), NOTHING);
            }
            ck_assert_msg(before == calls[i].by_head[head].before && move.next == calls[i].by_head[head].next,
                          "%s from %s", calls[i].name, gb_head_name(head));
        }
    }
}
END_TEST

/* async_gpu_push asks for the head at the CPU: a sync to the device does the same there, and is permitted elsewhere. */
START_TEST(async_gpu_push) {
    struct gb_mirror_move move = gb_mirror_move(H, GB_MIRROR_SYNC_DEVICE);

    ck_assert_int_eq(move.step, GB_MIRROR_COPY);
    ck_assert_int_eq(move.next, S);
}
END_TEST

START_TEST(current_sides) {
    ck_assert(!gb_side_current(N, GB_SIDE_HOST) && !gb_side_current(N, GB_SIDE_DEVICE));
    ck_assert(gb_side_current(H, GB_SIDE_HOST) && !gb_side_current(H, GB_SIDE_DEVICE));
    ck_assert(!gb_side_current(D, GB_SIDE_HOST) && gb_side_current(D, GB_SIDE_DEVICE));
    ck_assert(gb_side_current(S, GB_SIDE_HOST) && gb_side_current(S, GB_SIDE_DEVICE));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_mirror_table");

    gb_test_add(suite, "synced_memory", every_call_of_synced_memory, 10);
    gb_test_add(suite, "async_gpu_push", async_gpu_push, 10);
    gb_test_add(suite, "current", current_sides, 10);
    return gb_test_run(suite);
}
