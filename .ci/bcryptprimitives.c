/* bcryptprimitives.dll for a Wine that lacks it: the one function that the standard library of Rust calls there. */
#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length) {
    while (length > 0) {
        ULONG part = length < MAXLONG ? (ULONG)length : MAXLONG;
        if (!RtlGenRandom(data, part)) return FALSE;
        data += part;
        length -= part;
    }
    return TRUE;
}
