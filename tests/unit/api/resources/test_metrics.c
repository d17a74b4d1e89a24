/* The text formats of metrics, the choice between them, the table of times by route, and what is read of the
 * process. */
#include "gb_test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/request/query.h"
#include "base/process.h"
#include "format/exposition.h"
#include "http/server/state.h"

static const struct gb_family counter = {GB_METRIC_COUNTER, "gpubufd_", "copy_seconds", GB_UNIT_SECONDS, "Time."};
static const struct gb_family gauge = {GB_METRIC_GAUGE, "gpubufd_", "buffers", GB_UNIT_NONE, "Buffers."};

static void check_text(enum gb_exposition form, const char *wanted) {
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);

    ck_assert_ptr_nonnull(out);
    gb_exposition_family(out, form, &counter);
    gb_exposition_sample(out, &counter, "", "kind=\"pinned\"", counter.unit, 1000000001);
    gb_exposition_family(out, form, &gauge);
    gb_exposition_sample(out, &gauge, "", "", gauge.unit, UINT64_MAX - 2);
    gb_exposition_sample(out, &gauge, "", "", gauge.unit, GB_METRIC_UNKNOWN); /* nothing */
    gb_exposition_sample(out, &gauge, "", "", gauge.unit, UINT64_MAX);
    gb_exposition_end(out, form);
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_str_eq(text, wanted);
    free(text);
}

START_TEST(test_formats) {
    check_text(GB_EXPOSITION_TEXT, "# HELP gpubufd_copy_seconds_total Time.\n"
                                   "# TYPE gpubufd_copy_seconds_total counter\n"
                                   "gpubufd_copy_seconds_total{kind=\"pinned\"} 1.000000001\n"
                                   "# HELP gpubufd_buffers Buffers.\n"
                                   "# TYPE gpubufd_buffers gauge\n"
                                   "gpubufd_buffers 18446744073709551613\n"
                                   "gpubufd_buffers +Inf\n");
    check_text(GB_EXPOSITION_OPENMETRICS, "# HELP gpubufd_copy_seconds Time.\n"
                                          "# TYPE gpubufd_copy_seconds counter\n"
                                          "# UNIT gpubufd_copy_seconds seconds\n"
                                          "gpubufd_copy_seconds_total{kind=\"pinned\"} 1.000000001\n"
                                          "# HELP gpubufd_buffers Buffers.\n"
                                          "# TYPE gpubufd_buffers gauge\n"
                                          "gpubufd_buffers 18446744073709551613\n"
                                          "gpubufd_buffers +Inf\n"
                                          "# EOF\n");
}
END_TEST

START_TEST(test_labels) {
    char out[24] = "";

    ck_assert(gb_exposition_label(out, sizeof(out), "a", "x\"y\\z\n"));
    ck_assert_str_eq(out, "a=\"x\\\"y\\\\z\\n\"");
    ck_assert(gb_exposition_label(out, sizeof(out), "b", ""));
    ck_assert_str_eq(out, "a=\"x\\\"y\\\\z\\n\",b=\"\"");
    ck_assert(!gb_exposition_label(out, sizeof(out), "c", "much too long for what is left"));
    ck_assert_str_eq(out, "a=\"x\\\"y\\\\z\\n\",b=\"\"");
    ck_assert(!gb_exposition_label(out, sizeof(out), "longer_than_the_room_that_is_left", ""));
    ck_assert_str_eq(out, "a=\"x\\\"y\\\\z\\n\",b=\"\"");
}
END_TEST

START_TEST(test_accept) {
    static const char open[] = "application/openmetrics-text";
    static const struct {
        const char *accept;
        bool open;
    } table[] = {
        {NULL, false},
        {"", false},
        {"*/*", false},
        {"application/*", false},
        {"text/plain", false},
        {"application/openmetrics-text", true},
        {"Application/OpenMetrics-Text; version=1.0.0", true},
        {"application/openmetrics-text;q=0", false},
        {"application/openmetrics-text;q=0.4,text/plain;q=0.5", false},
        {"application/openmetrics-text;q=0.4,text/*;q=0.5", false},
        {"application/openmetrics-text;q=0.5,text/plain;q=0.5", true},
        {"text/plain;version=0.0.4;q=0.5,*/*;q=0.1,application/openmetrics-text;version=1.0.0", true},
    };
    size_t i;

    for (i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        ck_assert_msg(gb_media_prefers(table[i].accept, open, "text/plain") == table[i].open, "%s",
                      table[i].accept ? table[i].accept : "none");
}
END_TEST

START_TEST(test_table) {
    struct gb_latency_table *table = gb_latency_table_new(2);
    struct gb_latency sum = {.time.ns = 0};
    unsigned i;

    ck_assert_ptr_nonnull(table);
    for (i = 0; i < GB_HISTOGRAM_BOUNDS; i++) {
        ck_assert(i == 0 || gb_histogram_bound_ns(i) > gb_histogram_bound_ns(i - 1));
        gb_latency_record(table, 0, 200, gb_histogram_bound_ns(i));
        gb_latency_record(table, 1, 404, gb_histogram_bound_ns(i) + 1);
    }
    gb_latency_record(table, 0, 304, 0);
    gb_latency_record(table, 1, 503, 7);
    gb_latency_record(table, 1, 0, 8);
    gb_latency_record(table, 99, 400, 9); /* of no route */
    gb_latency_add(table, 0, &sum);
    for (i = 0; i <= GB_HISTOGRAM_BOUNDS; i++)
        ck_assert_uint_eq(sum.time.bucket[i], i == 0 ? 2 : i < GB_HISTOGRAM_BOUNDS ? 1 : 0);
    ck_assert_uint_eq(sum.outcome[GB_OUTCOME_2XX], GB_HISTOGRAM_BOUNDS);
    ck_assert_uint_eq(sum.outcome[GB_OUTCOME_3XX], 1);
    sum = (struct gb_latency){.time.ns = 0};
    gb_latency_add(table, 1, &sum);
    ck_assert_uint_eq(sum.time.bucket[0], 2);
    ck_assert_uint_eq(sum.time.bucket[GB_HISTOGRAM_BOUNDS], 1);
    ck_assert_uint_eq(sum.outcome[GB_OUTCOME_4XX], GB_HISTOGRAM_BOUNDS);
    ck_assert_uint_eq(sum.outcome[GB_OUTCOME_5XX], 1);
    ck_assert_uint_eq(sum.outcome[GB_OUTCOME_BROKEN], 1);
    sum = (struct gb_latency){.time.ns = 100};
    gb_latency_add(table, 2, &sum);
    ck_assert_uint_eq(sum.time.ns, 109);
    gb_latency_add(table, 3, &sum);
    gb_latency_add(NULL, 0, &sum);
    ck_assert_uint_eq(sum.time.ns, 109);
    gb_latency_table_free(table);
}
END_TEST

#define NOTES 200000

static void *note_many(void *arg) {
    int i;

    for (i = 0; i < NOTES; i++)
        gb_latency_record(arg, 0, 200, 1);
    return NULL;
}

/* One thread counts while others read; none of it is lost, and no reader sees a count go back. */
START_TEST(test_read_meanwhile) {
    struct gb_latency_table *table = gb_latency_table_new(1);
    struct gb_latency sum;
    uint64_t before = 0;
    pthread_t thread;

    ck_assert_ptr_nonnull(table);
    ck_assert_int_eq(pthread_create(&thread, NULL, note_many, table), 0);
    do {
        sum = (struct gb_latency){.time.ns = 0};
        gb_latency_add(table, 0, &sum);
        ck_assert_uint_ge(sum.time.bucket[0], before);
        before = sum.time.bucket[0];
    } while (before < NOTES);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(before, NOTES);
    gb_latency_table_free(table);
}
END_TEST

START_TEST(test_histogram) {
    struct gb_histogram h = {.ns = 0};

    ck_assert_uint_eq(gb_histogram_count(&h), 0);
    gb_histogram_add(&h, 0);
    gb_histogram_add(&h, 100000);
    gb_histogram_add(&h, 100001);
    gb_histogram_add(&h, 1000000000000);
    ck_assert_uint_eq(h.bucket[0], 2);
    ck_assert_uint_eq(h.bucket[1], 1);
    ck_assert_uint_eq(h.bucket[GB_HISTOGRAM_BOUNDS], 1);
    ck_assert_uint_eq(gb_histogram_count(&h), 4);
    ck_assert_uint_eq(h.ns, 1000000200001);
    ck_assert_uint_eq(h.max_ns, 1000000000000);
}
END_TEST

START_TEST(test_process) {
    struct gb_process one;
    struct gb_process two;
    int fds[2];

    gb_process_read(&one);
    ck_assert_uint_ge(one.resident_bytes, 4096);
    ck_assert_uint_ge(one.virtual_bytes, one.resident_bytes);
    ck_assert_int_eq(pipe(fds), 0);
    gb_process_read(&two);
    ck_assert_uint_eq(two.open_fds, one.open_fds + 2);
    ck_assert_uint_ge(two.max_fds, two.open_fds);
    ck_assert_uint_ge(two.cpu_ns, one.cpu_ns);
    ck_assert_uint_gt(gb_process_started_ns(), 0);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("metrics");

    gb_test_add(suite, "formats", test_formats, 60);
    gb_test_add(suite, "labels", test_labels, 60);
    gb_test_add(suite, "accept", test_accept, 60);
    gb_test_add(suite, "table", test_table, 60);
    gb_test_add(suite, "read_meanwhile", test_read_meanwhile, 120);
    gb_test_add(suite, "histogram", test_histogram, 60);
    gb_test_add(suite, "process", test_process, 60);
    return gb_test_run(suite);
}
