/* Long headers: their memory is bounded, a thread of their own parses them, and each may be released at any time. */
#include <stdlib.h>
#include <string.h>

#include "gb_test.h"

#include "api/resources/table.h"

#define LONGEST GB_SAFETENSORS_HEADER_MAX

/* Counts wakes. */
struct wakes {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int count;
};

static void wake(void *arg) {
    struct wakes *w = arg;

    pthread_mutex_lock(&w->lock);
    w->count++;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static struct gb_heading *make(struct gb_tables *tables, size_t n, struct wakes *w) {
    struct gb_heading *h = gb_heading_new(tables, n, (struct gb_waker){wake, w});

    ck_assert_ptr_nonnull(h);
    return h;
}

static bool has_room(struct gb_heading *h) {
    struct gb_error err = GB_ERROR_INIT;
    char *room;

    return gb_heading_room(h, &room, &err) == 1;
}

/* Waits until the header is parsed. Returns as gb_heading_result. */
static int parsed(struct gb_heading *h, struct wakes *w, struct gb_table **ret, struct gb_safetensors *ret_file,
                  struct gb_error *err) {
    int seen;
    int r;

    for (;;) {
        pthread_mutex_lock(&w->lock);
        seen = w->count;
        pthread_mutex_unlock(&w->lock);
        r = gb_heading_result(h, ret, ret_file, err);
        if (r != 0)
            return r;
        pthread_mutex_lock(&w->lock);
        while (w->count == seen)
            pthread_cond_wait(&w->changed, &w->lock);
        pthread_mutex_unlock(&w->lock);
    }
}

static void fill(struct gb_heading *h, const char *text, size_t n) {
    struct gb_error err = GB_ERROR_INIT;
    char *room;
    int i;

    ck_assert_int_eq(gb_heading_room(h, &room, &err), 1);
    for (i = 0; i < GB_SAFETENSORS_LENGTH; i++)
        room[i] = (char)((n - GB_SAFETENSORS_LENGTH) >> 8 * i);
    memcpy(room + GB_SAFETENSORS_LENGTH, text, n - GB_SAFETENSORS_LENGTH);
}

#define ONE "{\"w\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}"

START_TEST(parses) {
    const char *const texts[] = {ONE, ONE, "{\"w\":5}"};
    struct wakes w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    struct gb_tables *tables = gb_tables_new();
    int i;

    for (i = 0; i < 3; i++) {
        const size_t n = GB_SAFETENSORS_LENGTH + strlen(texts[i]);
        struct gb_heading *h = make(tables, n, &w);
        struct gb_error err = GB_ERROR_INIT;
        struct gb_safetensors file = {0};
        struct gb_table *table = NULL;

        fill(h, texts[i], n);
        gb_heading_parse(h, i == 1 ? 2 : 1);
        ck_assert_int_eq(parsed(h, &w, &table, &file, &err), i < 2 ? 1 : -1);
        ck_assert_int_eq(err.code, i < 2 ? GB_OK : GB_ERR_UNSUPPORTED_ARRAY);
        ck_assert_int_eq(table != NULL, i == 0);
        ck_assert_uint_eq(file.count, i == 1);
        gb_heading_free(h);
        gb_table_unref(table);
        gb_safetensors_done(&file);
    }
    gb_tables_free(tables);
}
END_TEST

/* Two of the longest fit; what comes later waits in its order, also if it would fit. */
START_TEST(waits) {
    struct wakes w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    struct gb_tables *tables = gb_tables_new();
    struct gb_heading *h[5];
    int i;

    for (i = 0; i < 5; i++)
        h[i] = make(tables, i == 4 ? 10 : LONGEST, &w);
    for (i = 0; i < 5; i++)
        ck_assert_int_eq(has_room(h[i]), i < 2);
    ck_assert_int_eq(w.count, 2);
    gb_heading_free(h[3]); /* while it waits */
    ck_assert(!has_room(h[4]));
    gb_heading_free(h[0]);
    ck_assert(has_room(h[2]));
    ck_assert(has_room(h[4]));
    ck_assert_int_eq(w.count, 4);
    for (i = 1; i < 5; i++)
        if (i != 3)
            gb_heading_free(h[i]);
    gb_tables_free(tables);
}
END_TEST

/* Some are released before, while and after they are parsed. */
START_TEST(goes) {
    struct wakes w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    const size_t n = GB_SAFETENSORS_LENGTH + strlen(ONE);
    struct gb_tables *tables = gb_tables_new();
    struct gb_error err = GB_ERROR_INIT;
    struct gb_safetensors file = {0};
    struct gb_table *table = NULL;
    struct gb_heading *last = NULL;
    int i;

    for (i = 0; i < 500; i++) {
        last = make(tables, n, &w);
        fill(last, ONE, n);
        gb_heading_parse(last, 0);
        if (i < 499)
            gb_heading_free(last);
    }
    ck_assert_int_eq(parsed(last, &w, &table, &file, &err), 1);
    gb_table_unref(table);
    gb_heading_free(last);
    last = make(tables, LONGEST, &w); /* all memory was given back */
    ck_assert(has_room(last));
    gb_heading_free(last);
    gb_heading_free(NULL);
    gb_tables_free(tables);
}
END_TEST

int main(void) {
    TCase *tcase = tcase_create("headings");
    Suite *suite = suite_create("api: long headers");

    tcase_add_test(tcase, parses);
    tcase_add_test(tcase, waits);
    tcase_add_test(tcase, goes);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
