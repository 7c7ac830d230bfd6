"""Ways to files outside, and odd files inside."""

from tests.reference.sandbox.attempt import Attempt, lines

ATTEMPTS = (
    *lines(
        "read_only_system",
        times_of_a_file="for name in ('public', 'shared'):\n"
        "    attempt(os.utime, f'{outside}/{name}')",
        chosen_times_of_a_file="attempt(os.utime, outside + '/shared', (9, 9))",
        times_of_the_folder="attempt(os.utime, outside)",
        extended_attribute="attempt(os.setxattr, outside + '/shared', 'user.a', b'1')",
        owner_of_a_file="attempt(os.chown, outside + '/shared', os.getuid(), -1)",
        cut_of_a_file="attempt(os.truncate, outside + '/shared', 0)",
        append_to_a_file="attempt(lambda: open(outside + '/shared', 'a'))",
        map_of_a_file="attempt(lambda: open(outside + '/shared', 'r+b'))",
        new_name="attempt(lambda: os.rename(outside + '/shared', outside + '/other'))",
        exchange="attempt(lambda: os.replace('main.py', outside + '/shared'))",
        removal="attempt(lambda: os.unlink(outside + '/shared'))",
        new_folder="attempt(lambda: os.mkdir(outside + '/new'))",
        new_link="attempt(lambda: os.symlink('/', outside + '/new'))",
        hard_link_to_the_outside="attempt(lambda: os.link('main.py', outside + '/new'))",
        new_pipe="attempt(lambda: os.mkfifo(outside + '/new'))",
        nameless_file="attempt(os.open, outside, os.O_TMPFILE | os.O_RDWR, 0o600)",
        write_through_a_link="os.symlink(outside + '/shared', 'to')\n"
        "attempt(lambda: open('to', 'a'))",
        write_through_a_folder="os.symlink(outside, 'there')\n"
        "attempt(lambda: open('there/written', 'w'))",
        write_by_a_shell="words = ['sh', '-c', f'echo > {outside}/written']\n"
        "if subprocess.run(words, stderr=-3).returncode == 0: escaped()",
        kernel_settings="attempt(lambda: open('/proc/sys/kernel/core_pattern', 'w').write('|/x'))",
        system_request="attempt(lambda: open('/proc/sysrq-trigger', 'w').write('h'))",
        control_groups="attempt(lambda: os.mkdir('/sys/fs/cgroup/memory/new'))",
    ),
    *lines(
        "hidden_files",
        list_of_a_folder="attempt(lambda: os.listdir(outside))",
        list_of_home="attempt(lambda: os.listdir('/root'))",
        list_of_the_root="attempt(lambda: os.listdir('/'))",
        list_of_sys="attempt(lambda: os.listdir('/sys'))",
        shadow_file="attempt(lambda: open('/etc/shadow').read())",
        hosts_file="attempt(lambda: open('/etc/hosts').read())",
        host_key="attempt(lambda: os.listdir('/etc/ssh'))",
        logs="attempt(lambda: os.listdir('/var/log'))",
        root_of_the_first_process="attempt(lambda: open('/proc/1/cwd/../etc/passwd').read())",
        folder_of_the_first="attempt(lambda: os.listdir('/proc/1/cwd'))",
        dots_above="attempt(lambda: open('../' * 40 + outside[1:] + '/public').read())",
        a_root_of_its_own="attempt(lambda: open('/proc/self/root' + outside + '/public').read())",
        memory_of_the_kernel="attempt(lambda: open('/proc/kcore', 'rb').read(1))",
        messages_of_the_kernel="attempt(os.open, '/proc/kmsg', os.O_NONBLOCK)",
        database_outside="import sqlite3\n"
        "try: escaped(sqlite3.connect(outside + '/public').execute('select 1 from a'))\n"
        "except sqlite3.Error: pass",
        copy_by_a_shell="attempt(lambda: subprocess.run(\n"
        "    ['cat', outside + '/public'], capture_output=True).stdout)",
        import_outside="sys.path.insert(0, outside)\n"
        "attempt(lambda: os.open(outside + '/public', os.O_RDONLY))",
        handle_of_a_path="attempt(lambda: os.read(os.open(outside + '/public', os.O_PATH), 9))",
    ),
    Attempt(
        "write_outside", "read_only_system", "attempt(lambda: open(outside + '/written', 'w'))"
    ),
    Attempt(
        "write_into_the_system",
        "read_only_system",
        "for folder in ('/usr', '/etc', '/dev', '/'):\n"
        "    attempt(lambda: open(folder + '/' + marker, 'w'))",
    ),
    Attempt(
        "change_of_mode_outside",
        "read_only_system",
        "attempt(os.chmod, outside + '/public', 0o777)",
    ),
    Attempt(
        "secret_of_mode_600", "hidden_files", "attempt(lambda: open(outside + '/secret').read())"
    ),
    Attempt(
        "secret_of_mode_644", "hidden_files", "attempt(lambda: open(outside + '/public').read())"
    ),
    Attempt("password_file", "hidden_files", "attempt(lambda: open('/etc/passwd').read())"),
    Attempt(
        "symlink_out",
        "hidden_files",
        "os.symlink(outside + '/public', 'link')\nattempt(lambda: open('link').read())",
    ),
    Attempt(
        "hard_link_out",
        "hidden_files",
        "attempt(os.link, outside + '/public', 'hard')\nattempt(lambda: open('hard').read())",
    ),
    Attempt(
        "open_files_of_the_caller",
        "no_new_privileges",
        """
for number in range(3, 256):
    attempt(lambda: os.fstat(number) and number)
""",
    ),
    Attempt(
        "devices",
        "no_new_privileges",
        """
import stat
for kind in (stat.S_IFBLK, stat.S_IFCHR):
    try:
        os.mknod("device", 0o666 | kind, os.makedev(254, 0))
        escaped("made")
    except OSError:
        pass
for path in ("/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/tty"):
    attempt(os.open, path, os.O_RDWR)
""",
    ),
    Attempt(
        "long_names_and_deep_folders",
        "no_new_privileges",
        """
for _ in range(40):
    os.mkdir("n" * 255)
    os.chdir("n" * 255)
""",
    ),
    Attempt(
        "odd_things_left_behind",
        "no_new_privileges",
        """
os.mkfifo("pipe")
os.mkdir("closed", 0)
open(b"\\xff\\xfe", "w")
os.symlink("loop", "loop")
""",
    ),
)
