/** Servers that end with the process that started them, however that ends. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import type { Readable, Writable } from 'node:stream'
import { turn } from '../wait.js'

/**
 * A shell between this process and the server. Its input is a pipe that only this process can write to; the kernel
 * closes that when this process ends, by SIGKILL as well, and then the shell kills the server. The server is a child
 * of the shell, so its pid cannot have become that of another process. Then nobody reads what the shell says either,
 * and saying that a child was killed would be the end of it.
 */
const GUARD = `
orphaned=
data=$1
shift
exec 4<&0
"$@" </dev/null 3>&- 4<&- &
server=$!
trap 'orphaned=yes; exec >/dev/null 2>&1; kill -KILL $server' TERM
{ read -r _ <&4; kill -TERM $$; } 3>&- &
guard=$!
echo $server >&3
exec 3>&-
wait $server
code=$?
# A server that says something then, and nobody listens, dies of that before it is killed.
[ $code -eq 141 ] && orphaned=yes
if [ -n "$orphaned" ]; then
  wait $server
  # A child of the server that writes a snapshot outlives it for a moment.
  if [ -n "$data" ]; then for try in $(seq 50); do rm -rf "$data" && break; sleep 0.1; done; fi
fi
kill $guard
exit $code
`

/** What of the server's output is kept. */
const OUTPUT_LENGTH = 10_000

/** The pipes of the shells whose servers run. */
const pipes = new Set<Writable>()

// A worker whose test runner was killed runs its tests to their end, which nobody waits for.
process.once('disconnect', () => {
  for (const pipe of pipes) pipe.destroy()
})

/** A server in a process of its own. */
export interface GuardedProcess {
  /** Of the server itself, for signals. */
  readonly pid: number
  /** Undefined while the server runs. */
  readonly exitCode: number | undefined
  /** Fulfils when the server is gone. */
  readonly exited: Promise<void>
  /** The end of what it wrote to stdout and stderr, for messages. */
  output(): string
  /** Does nothing when the server is gone. */
  signal(signal: NodeJS.Signals): void
}

/**
 * Starts a program that is killed when this process ends. Fulfils when it runs, which says nothing about readiness.
 *
 * @param throwaway A folder to remove when this process ends before the server does.
 */
export async function spawnGuarded(
  command: string,
  args: readonly string[],
  throwaway?: string,
): Promise<GuardedProcess> {
  const shell = spawn('sh', ['-c', GUARD, 'guard', throwaway ?? '', command, ...args], {
    stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
    // Ctrl-C of a terminal goes to whole groups; the shell has to outlive the tests to end the server in order.
    detached: true,
  })
  pipes.add(shell.stdin)
  let output = ''
  const keep = (chunk: Buffer) => {
    output = `${output}${chunk}`.slice(-OUTPUT_LENGTH)
  }
  shell.stdout?.on('data', keep)
  shell.stderr?.on('data', keep)
  let exitCode: number | undefined
  const exited = once(shell, 'exit').then(async ([code]) => {
    pipes.delete(shell.stdin)
    // Its last words are in the pipe already, but maybe not read.
    await turn()
    exitCode = code ?? 1
  })
  const pid = await pidFrom(shell)
  return {
    pid,
    exited,
    get exitCode() {
      return exitCode
    },
    output: () => output,
    signal: (signal) => {
      if (exitCode === undefined) signalTo(pid, signal)
    },
  }
}

async function pidFrom(shell: ChildProcess): Promise<number> {
  let said = ''
  for await (const chunk of shell.stdio[3] as Readable) said += chunk
  const pid = Number(said)
  // Signals to 0 or less would go to whole groups.
  if (!(pid > 0)) throw new Error(`the shell did not say which process it had started: ${JSON.stringify(said)}`)
  return pid
}

function signalTo(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch (error) {
    // It is gone, and the event that says so is under way.
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}
