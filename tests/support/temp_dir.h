/* A directory of the test's own on the real disk, removed with all that is in it. */
#ifndef ND_TESTS_SUPPORT_TEMP_DIR_H
#define ND_TESTS_SUPPORT_TEMP_DIR_H

/* Its absolute path; free with temp_dir_remove(). Below $TMPDIR, or /tmp. Aborts when it cannot. */
char *temp_dir_new(void);
void temp_dir_remove(char *path);

#endif
