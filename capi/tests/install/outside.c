/* A program of another project. */
#include <sterna.h>

#include <stdio.h>

int main(void) {
    puts(sterna_version_string());
    return 0;
}
