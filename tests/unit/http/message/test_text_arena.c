/* Texts of a request: the block inside the arena, the second block, and the end of both. */
#include <stdlib.h>
#include <string.h>

#include "gb_test.h"
#include "http/message/fields.h"

#define MORE 2000

static char fill[MORE + 1];

START_TEST(test_copies) {
    struct gb_text_arena arena;
    const char *first;
    const char *second;
    const char *last;

    gb_text_arena_init(&arena, MORE);
    first = gb_text_arena_copy(&arena, "first and more", 5);
    second = gb_text_arena_copy(&arena, fill, GB_TEXT_ARENA_SMALL - 7);
    ck_assert_ptr_null(arena.more);
    last = gb_text_arena_copy(&arena, "", 0);
    ck_assert_str_eq(first, "first");
    ck_assert_int_eq(memcmp(second, fill, GB_TEXT_ARENA_SMALL - 7), 0);
    ck_assert_str_eq(last, "");
    ck_assert_ptr_nonnull(arena.more);
    gb_text_arena_done(&arena);
}
END_TEST

/* A text that does not fit leaves the others whole. */
START_TEST(test_full) {
    struct gb_text_arena arena;
    const char *first;

    gb_text_arena_init(&arena, MORE);
    first = gb_text_arena_copy(&arena, "first", 5);
    ck_assert_ptr_null(gb_text_arena_copy(&arena, fill, MORE));
    ck_assert_ptr_nonnull(gb_text_arena_copy(&arena, fill, MORE - 1));
    ck_assert_ptr_null(gb_text_arena_copy(&arena, "", 0));
    ck_assert_str_eq(first, "first");
    gb_text_arena_done(&arena);
}
END_TEST

START_TEST(test_zeroed) {
    struct gb_text_arena *arena = calloc(1, sizeof(*arena));

    ck_assert_ptr_nonnull(arena);
    gb_text_arena_done(arena);
    free(arena);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("text_arena");
    TCase *tcase = tcase_create("text_arena");

    memset(fill, 'x', sizeof(fill));
    tcase_add_test(tcase, test_copies);
    tcase_add_test(tcase, test_full);
    tcase_add_test(tcase, test_zeroed);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
